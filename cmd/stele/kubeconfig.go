package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/auth/pki"
)

type kubeconfigOptions struct {
	show.FormatFlags
	dataDir, pkiDir, user, server, serverName, file string
	groups                                          []string
	valid                                           time.Duration
}

func kubeconfigCommand() *cobra.Command {
	o := &kubeconfigOptions{}
	cmd := &cobra.Command{
		Use:   "kubeconfig --user USER",
		Short: "Make a kubeconfig for a user: a client certificate of this control plane",
		Long: `Kubeconfig signs a client certificate for a user and groups with the control plane's
certificate authority, and prints a kubeconfig with it. The policy decides what the user
and the groups may do. Use it to try roles, and for programs outside the control plane.
The certificate cannot be revoked; --valid limits its life.

It reads the data directory, so only the owner of that folder can run it.

The kubeconfig asks for the name own.stele.internal, for which a server always has a
certificate of this authority, also one that runs with --tls-cert-file. Give
--tls-server-name "" if a balancer chooses the server by the name that a client asks for.`,
		Example: `  stele kubeconfig --user alice --group team-data --file alice.kubeconfig
  kubectl --kubeconfig alice.kubeconfig auth whoami`,
		Args: usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", "./stele-data", "folder of the control plane")
	f.StringVar(&o.pkiDir, "pki-dir", "", "folder of the authority, if stele serve runs with --pki-dir (default: pki in --data-dir)")
	f.StringVar(&o.user, "user", "", "`NAME` of the user")
	f.StringSliceVar(&o.groups, "group", nil, "group that the user is in; may be repeated")
	f.StringVar(&o.server, "server", "", "URL of the server (default: that of the administrator's kubeconfig)")
	f.StringVar(&o.serverName, "tls-server-name", pki.OwnName, "`NAME` that the server's certificate must have; empty for the name in the URL")
	usage.DurationVar(f, &o.valid, "valid", 24*time.Hour, "how long the certificate is valid: 12h, 7d")
	f.StringVar(&o.file, "file", "", "file to write, readable by its owner only (default: standard output)")
	o.AddFlags(cmd, "yaml", "json")
	checkFormat := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if strings.ContainsAny(o.Format, "./") { // -o was the flag for the file before
			return usage.Errorf("-o %s: -o is the output format, yaml or json; to write a file, use --file %s", o.Format, usage.Quote(o.Format))
		}
		return checkFormat(cmd, args)
	}
	usage.Required(cmd, "user")
	_ = cmd.MarkFlagDirname("data-dir")
	_ = cmd.MarkFlagFilename("file")
	return cmd
}

func (o *kubeconfigOptions) run(cmd *cobra.Command) error {
	if o.user == "" {
		return usage.Errorf("--user: the name is empty")
	}
	if o.valid < time.Minute {
		return usage.Errorf("--valid %v: use a minute or more", o.valid)
	}
	if o.server == "" {
		server, err := o.findServer()
		if err != nil {
			return err
		}
		o.server = server
	}
	ca, err := pki.OpenAuthority(cmp.Or(o.pkiDir, filepath.Join(o.dataDir, "pki"))) // no server would trust a new one
	if err != nil {
		return err
	}
	client, err := ca.Issue(o.user, o.groups, o.valid)
	if err != nil {
		return err
	}
	data, err := ca.Kubeconfig(o.server, o.serverName, o.user, client)
	if err != nil {
		return err
	}
	if o.Format == "json" {
		if data, err = yaml.YAMLToJSON(data); err != nil {
			return err
		}
		data = append(data, '\n')
	}
	if o.file != "" {
		return pki.WritePrivate(o.file, data)
	}
	_, err = cmd.OutOrStdout().Write(data)
	return err
}

// findServer returns the server of the administrator's kubeconfig.
func (o *kubeconfigOptions) findServer() (string, error) {
	admin := filepath.Join(o.dataDir, "admin.kubeconfig")
	config, err := clientcmd.LoadFromFile(admin)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s has no control plane; start one there with `stele serve`, or give --data-dir", o.dataDir)
	}
	if err != nil {
		return "", err
	}
	if cluster := config.Clusters[pki.ClusterName]; cluster != nil && cluster.Server != "" {
		return cluster.Server, nil
	}
	return "", fmt.Errorf("%s has no server; give --server", admin)
}
