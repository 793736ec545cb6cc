package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"stele.dev/stele/cmd/stele/internal/apiserver"
	"stele.dev/stele/cmd/stele/internal/build"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// isKubeAPIServer reports whether the program is called by kube-apiserver's name.
func isKubeAPIServer() bool { return filepath.Base(os.Args[0]) == apiserver.Name }

// otherDefaults are the helps of flags that have other defaults than in serve.
var otherDefaults = map[string]string{
	"anonymous-auth": "accept requests without credentials, as the user system:anonymous (default: true, unless --authentication-config says it)",
	"data-dir":       "folder of all data (default: stele in --cert-dir, or else /var/lib/stele)",
	"policy":         "folder of the policy bundle (default: a built-in one with Kubernetes' own roles)",
	"profiling":      "serve profiles of the program at /debug/pprof/, to users whom the policy grants that path (default true)",
}

// kubeAPIServerCommand returns the command that runs a control plane by the flags of kube-apiserver.
func kubeAPIServerCommand() *cobra.Command {
	o := &serveOptions{builtIn: apiserver.Policy}
	serve := o.command()
	var own apiserver.Flags
	cmd := &cobra.Command{
		Use:   apiserver.Name,
		Short: "Run a control plane by the flags of kube-apiserver",
		Long: `Kube-apiserver runs a control plane as serve does, and takes the flags of kube-apiserver, so that
envtest, kubeadm and other programs can start it in its place. The program does the same if its file
is called kube-apiserver.

Flags about Pods, nodes, Services and aggregated API servers are accepted, and have no effect. A flag
that stele cannot do is refused, with the reason. The flags of serve are accepted, too.

Without --policy, the policy has the roles of Kubernetes' own components and no kinds. Without
--data-dir, data are in the folder stele of --cert-dir, or else in /var/lib/stele.`,
		Example: `  KUBEBUILDER_ASSETS=/usr/local/lib/stele go test ./...
  stele kube-apiserver --etcd-servers http://127.0.0.1:2379 --cert-dir ./pki --secure-port 6443 --authorization-mode RBAC --client-ca-file ca.crt`,
		Args:    usage.NoArguments,
		Version: "v" + build.KubernetesVersion + "+stele-" + build.Version,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := own.Set(serve.Flags()); err != nil {
				return usage.Mark(err)
			}
			if names := own.Ignored(); len(names) > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: no effect, because what they concern is not served\n", strings.Join(names, ", "))
			}
			serve.SetContext(cmd.Context())
			serve.SetOut(cmd.OutOrStdout())
			serve.SetErr(cmd.ErrOrStderr())
			return serve.RunE(serve, nil)
		},
	}
	cmd.SetVersionTemplate("Kubernetes {{.Version}}\n")
	var groups usage.FlagGroups
	f := groups.Group("Flags")
	own.AddFlags(f, groups.Group("Flags without effect"))
	others := groups.Group("Flags of serve")
	serve.Flags().VisitAll(func(s *pflag.Flag) {
		if f.Lookup(s.Name) == nil && s.Name != "help-all" && s.Name != "listen" {
			if help, differs := otherDefaults[s.Name]; differs {
				s.Usage, s.DefValue = help, ""
			}
			others.AddFlag(s)
		}
	})
	groups.Use(cmd, "etcd-servers", "secure-port", "bind-address", "cert-dir", "client-ca-file", "authorization-mode", "policy", "data-dir")
	cmd.Flags().SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	return cmd
}
