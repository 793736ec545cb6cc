package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"stele.dev/stele/core/pki"
)

type kubeconfigOptions struct {
	dataDir, user, server, output string
	groups                        []string
	valid                         time.Duration
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
		Example: `  stele kubeconfig --user alice --group team-data -o alice.kubeconfig
  kubectl --kubeconfig alice.kubeconfig auth whoami`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", "./stele-data", "folder of the control plane")
	f.StringVar(&o.user, "user", "", "name of the user")
	f.StringSliceVar(&o.groups, "group", nil, "a group that the user is in; may be repeated")
	f.StringVar(&o.server, "server", "", "URL of the server (default: that of the administrator's kubeconfig)")
	f.DurationVar(&o.valid, "valid", 24*time.Hour, "how long the certificate is valid")
	f.StringVarP(&o.output, "output", "o", "", "file to write, for its owner alone (default: standard output)")
	_ = cmd.MarkFlagRequired("user")
	_ = cmd.MarkFlagDirname("data-dir")
	_ = cmd.MarkFlagFilename("output")
	return cmd
}

func (o *kubeconfigOptions) run(cmd *cobra.Command) error {
	if o.user == "" {
		return errors.New("--user: want a name")
	}
	if o.valid < time.Minute {
		return fmt.Errorf("--valid %v: want at least a minute", o.valid)
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
	if _, err := os.Stat(filepath.Join(dir, "ca.key")); err != nil {
		return err // or else an authority would be made that no server knows
	}
	ca, err := pki.LoadAuthority(dir)
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
	if o.output != "" {
		return pki.WritePrivate(o.output, data)
	}
	_, err = cmd.OutOrStdout().Write(data)
	return err
}

const kubeconfigName = "stele"

// kubeconfig has one context, which is the current one.
func kubeconfig(server string, ca []byte, user string, client pki.Pair) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[kubeconfigName] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: client.Cert, ClientKeyData: client.Key}
	config.Contexts[kubeconfigName] = &clientcmdapi.Context{Cluster: kubeconfigName, AuthInfo: user, Namespace: "default"}
	config.CurrentContext = kubeconfigName
	return clientcmd.Write(*config)
}
