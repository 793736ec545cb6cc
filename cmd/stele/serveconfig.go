package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"stele.dev/stele/cmd/stele/internal/configfile"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// settings are the flags on where the other flags come from.
type settings struct {
	file  string
	print bool
}

func (s *settings) addFlags(f *pflag.FlagSet) {
	f.StringVar(&s.file, "config", "", "YAML file whose keys are the names of flags; flags on the command line override the environment, and that overrides the file")
	f.BoolVar(&s.print, "print-config", false, "print the settings in force as a file for --config, without secrets, and exit")
}

// use makes a command read the file, before anything else that it does.
func (s *settings) use(cmd *cobra.Command) {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if s.file != "" {
			if err := configfile.Read(cmd.Flags(), s.file); err != nil {
				return usage.Mark(err)
			}
		}
		if s.print {
			return configfile.Write(cmd.OutOrStdout(), cmd.Flags())
		}
		return run(cmd, args)
	}
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
}

// firstFlags are the flags of serve that people need first.
var firstFlags = []string{
	"data-dir", "listen", "host", "policy", "config", "etcd-endpoints", "tls-cert-file", "tls-private-key-file", "authentication-config", "anonymous-auth",
	"memory", "shutdown-delay-duration", "log-level",
}
