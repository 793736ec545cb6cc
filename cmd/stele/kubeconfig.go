package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/pki"
)

type kubeconfigOptions struct {
	show.FormatFlags
	dataDir, user, server, file string
	groups                      []string
	valid                       time.Duration
}

func kubeconfigCommand() *cobra.Command {
	o := &kubeconfigOptions{}
	cmd := &cobra.Command{
		Use:   "kubeconfig --user USER",
		Short: "Make a kubeconfig for a user: a client certificate of this control plane",
		Long: `Kubeconfig signs a client certificate for a user and groups with the control plane's own
authority, and prints a kubeconfig with it. What the user may do is what the policy says
of the user and the groups: this is for trying roles, and for robots outside. The
certificate cannot be taken back; it is valid for as long as --valid says.

It reads the data directory, so that only its owner can do this.`,
		Example: `  stele kubeconfig --user alice --group team-data --file alice.kubeconfig
  kubectl --kubeconfig alice.kubeconfig auth whoami`,
		Args: usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", "./stele-data", "folder of the control plane")
	f.StringVar(&o.user, "user", "", "`NAME` of the user")
	f.StringSliceVar(&o.groups, "group", nil, "group that the user is in; may be repeated")
	f.StringVar(&o.server, "server", "", "URL of the server (default: that of the administrator's kubeconfig)")
	usage.DurationVar(f, &o.valid, "valid", 24*time.Hour, "how long the certificate is valid: 12h, 7d")
	f.StringVar(&o.file, "file", "", "file to write, for its owner alone (default: standard output)")
	o.AddFlags(cmd, "yaml", "json")
	usage.Required(cmd, "user")
	_ = cmd.MarkFlagDirname("data-dir")
	_ = cmd.MarkFlagFilename("file")
	return cmd
}

func (o *kubeconfigOptions) run(cmd *cobra.Command) error {
	if strings.ContainsAny(o.Format, "./") { // what was the file's flag
		return usage.Errorf("-o %s: -o is the output format, yaml or json; to write a file, use --file %s", o.Format, usage.Quote(o.Format))
	}
	if err := o.Check(); err != nil {
		return err
	}
	if o.user == "" {
		return usage.Errorf("--user: the name is empty")
	}
	if o.valid < time.Minute {
		return usage.Errorf("--valid %v: use a minute or more", o.valid)
	}
	admin := filepath.Join(o.dataDir, "admin.kubeconfig")
	if o.server == "" {
		config, err := clientcmd.LoadFromFile(admin)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s has no control plane: `stele serve` starts one there, or give --data-dir", o.dataDir)
		}
		if err != nil {
			return err
		}
		cluster := config.Clusters[kubeconfigName]
		if cluster == nil {
			return fmt.Errorf("%s does not say where the server is; give --server", admin)
		}
		o.server = cluster.Server
	}
	dir := filepath.Join(o.dataDir, "pki")
	ca, err := pki.OpenAuthority(dir) // a new one would be known to no server
	if err != nil {
		return err
	}
	client, err := ca.Issue(o.user, o.groups, o.valid)
	if err != nil {
		return err
	}
	data, err := kubeconfig(o.server, ca.PEM, o.user, client)
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

const kubeconfigName = "stele"

// kubeconfig returns a kubeconfig with one context.
func kubeconfig(server string, ca []byte, user string, client pki.Pair) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[kubeconfigName] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: client.Cert, ClientKeyData: client.Key}
	config.Contexts[kubeconfigName] = &clientcmdapi.Context{Cluster: kubeconfigName, AuthInfo: user, Namespace: "default"}
	config.CurrentContext = kubeconfigName
	return clientcmd.Write(*config)
}
