package client

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"stele.dev/stele/cmd/stele/internal/build"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// Flags are the flags of commands that talk to a server: the kubeconfig, the namespace and the user.
type Flags struct {
	Kubeconfig, Context, Namespace string
	Everywhere                     bool // --all-namespaces
	user                           string
	groups                         []string
}

// AddFlags adds --kubeconfig, --context and --namespace.
func (o *Flags) AddFlags(cmd *cobra.Command) {
	defaults := "$KUBECONFIG, then ./stele-data/admin.kubeconfig"
	if usage.IsPlugin() {
		defaults = "$KUBECONFIG, then ~/.kube/config"
	}
	f := cmd.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig of the server (default: "+defaults+")")
	f.StringVar(&o.Context, "context", "", "context of the kubeconfig (default: its current one)")
	f.StringVarP(&o.Namespace, "namespace", "n", "", "namespace (default: that of the kubeconfig's context)")
	_ = cmd.MarkFlagFilename("kubeconfig")
	_ = cmd.RegisterFlagCompletionFunc("context", o.completeContexts)
	_ = cmd.RegisterFlagCompletionFunc("namespace", o.completeNamespaces)
}

// AddAllNamespaces adds --all-namespaces.
func (o *Flags) AddAllNamespaces(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&o.Everywhere, "all-namespaces", "A", false, "in all namespaces")
	usage.Exclusive(cmd, "namespace", "all-namespaces")
}

// AddIdentity adds --as and --as-group, which let a user act as another one. That needs permission to impersonate.
func (o *Flags) AddIdentity(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.user, "as", "", "act as this user (default: yourself)")
	cmd.Flags().StringArrayVar(&o.groups, "as-group", nil, "group of that user; may be repeated")
	for _, flag := range []string{"as", "as-group"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// LoadingRules returns the rules that find the kubeconfig.
func (o *Flags) LoadingRules() *clientcmd.ClientConfigLoadingRules {
	if usage.IsPlugin() {
		rules := clientcmd.NewDefaultClientConfigLoadingRules() // kubectl's own
		rules.ExplicitPath = o.Kubeconfig
		return rules
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.Kubeconfig}
	if o.Kubeconfig == "" {
		if env := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); env != "" {
			rules.Precedence = filepath.SplitList(env)
		} else {
			rules.Precedence = []string{implicitFile}
		}
	}
	return rules
}

// Config reads the kubeconfig and returns how to connect to its server.
func (o *Flags) Config() (*rest.Config, clientcmd.ClientConfig, error) {
	if o.user == "" && len(o.groups) > 0 {
		return nil, nil, usage.Errorf("--as-group needs --as")
	}
	if o.implicit() {
		if err := checkImplicit(implicitFile); err != nil {
			return nil, nil, err
		}
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(o.LoadingRules(), &clientcmd.ConfigOverrides{CurrentContext: o.Context})
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		if files := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); files != "" && o.Kubeconfig == "" {
			return nil, nil, fmt.Errorf("no server is configured: $%s is %s, which does not exist or is empty", clientcmd.RecommendedConfigPathEnvVar, files)
		}
		if usage.IsPlugin() {
			return nil, nil, errors.New("no server is configured: set KUBECONFIG, give --kubeconfig, or choose a context by `kubectl config use-context`")
		}
		return nil, nil, errors.New("no server is configured: run where `stele serve` was started, set KUBECONFIG, or give --kubeconfig")
	}
	if err != nil {
		return nil, nil, err
	}
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go also returns the errors that it logs
	config.WarningHandler = rest.NewWarningWriter(os.Stderr, rest.WarningWriterOptions{Deduplicate: true})
	config.UserAgent = "stele/" + build.Version
	config.QPS = -1
	if o.user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: o.user, Groups: o.groups}
	}
	return config, loader, nil
}

// NamespaceFor returns the namespace in which to look for objects of a kind. It is empty for all namespaces, and for
// kinds without namespaces.
func (o *Flags) NamespaceFor(mapping *meta.RESTMapping, loader clientcmd.ClientConfig) (string, error) {
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return "", nil
	}
	return o.namespaceOrDefault(loader)
}

// namespaceOrDefault returns the namespace of the flags, or else of the kubeconfig's context. It is empty for all
// namespaces.
func (o *Flags) namespaceOrDefault(loader clientcmd.ClientConfig) (string, error) {
	if o.Everywhere || o.Namespace != "" {
		return o.Namespace, nil
	}
	namespace, _, err := loader.Namespace()
	return namespace, err
}
