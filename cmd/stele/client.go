package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// clientOptions are the flags of commands that talk to a server.
type clientOptions struct {
	kubeconfig, context, namespace string
	everywhere                     bool // --all-namespaces
	user                           string
	groups                         []string
}

func (o *clientOptions) addFlags(cmd *cobra.Command) {
	defaults := "$KUBECONFIG, then ./stele-data/admin.kubeconfig"
	if isPlugin() {
		defaults = "$KUBECONFIG, then ~/.kube/config"
	}
	f := cmd.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the server (default: "+defaults+")")
	f.StringVar(&o.context, "context", "", "context of the kubeconfig (default: its current one)")
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace (default: that of the kubeconfig's context)")
	_ = cmd.MarkFlagFilename("kubeconfig")
	_ = cmd.RegisterFlagCompletionFunc("context", o.completeContexts)
	_ = cmd.RegisterFlagCompletionFunc("namespace", o.completeNamespaces)
}

// addAllNamespaces is for commands that can look at more than one namespace.
func (o *clientOptions) addAllNamespaces(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&o.everywhere, "all-namespaces", "A", false, "in all namespaces")
	exclusive(cmd, "namespace", "all-namespaces")
}

// addIdentity is for commands that can be another user, who has the permission to impersonate.
func (o *clientOptions) addIdentity(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.user, "as", "", "act as this user (default: yourself)")
	cmd.Flags().StringArrayVar(&o.groups, "as-group", nil, "group of that user; may be repeated")
	for _, flag := range []string{"as", "as-group"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// loadingRules say where the kubeconfig is.
func (o *clientOptions) loadingRules() *clientcmd.ClientConfigLoadingRules {
	if isPlugin() {
		rules := clientcmd.NewDefaultClientConfigLoadingRules() // kubectl's own
		rules.ExplicitPath = o.kubeconfig
		return rules
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.kubeconfig}
	if o.kubeconfig == "" {
		if env := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); env != "" {
			rules.Precedence = filepath.SplitList(env)
		} else {
			rules.Precedence = []string{filepath.Join("stele-data", "admin.kubeconfig")}
		}
	}
	return rules
}

// config finds the server. Commands go through the same authenticated API as everyone.
func (o *clientOptions) config() (*rest.Config, clientcmd.ClientConfig, error) {
	if o.user == "" && len(o.groups) > 0 {
		return nil, nil, usagef("--as-group needs --as")
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(o.loadingRules(), &clientcmd.ConfigOverrides{CurrentContext: o.context})
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		if files := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); files != "" && o.kubeconfig == "" {
			return nil, nil, fmt.Errorf("no server is configured: $%s is %s, which does not exist or says nothing", clientcmd.RecommendedConfigPathEnvVar, files)
		}
		if isPlugin() {
			return nil, nil, errors.New("no server is configured: set KUBECONFIG, give --kubeconfig, or choose a context by `kubectl config use-context`")
		}
		return nil, nil, errors.New("no server is configured: run where `stele serve` was started, set KUBECONFIG, or give --kubeconfig")
	}
	if err != nil {
		return nil, nil, err
	}
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // what it says of errors, they say
	config.WarningHandler = rest.NewWarningWriter(os.Stderr, rest.WarningWriterOptions{Deduplicate: true})
	config.UserAgent = "stele/" + Version
	config.QPS = -1
	if o.user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: o.user, Groups: o.groups}
	}
	return config, loader, nil
}

// namespaceFor is where objects of a kind are meant: "" for all, and for kinds that have
// none.
func (o *clientOptions) namespaceFor(mapping *meta.RESTMapping, loader clientcmd.ClientConfig) (string, error) {
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return "", nil
	}
	return o.namespaceOrDefault(loader)
}

// namespaceOrDefault is the namespace that the flags mean, else the context's; "" for all.
func (o *clientOptions) namespaceOrDefault(loader clientcmd.ClientConfig) (string, error) {
	if o.everywhere || o.namespace != "" {
		return o.namespace, nil
	}
	namespace, _, err := loader.Namespace()
	return namespace, err
}

// readable prefers the message of a Status in the body.
func readable(err error, body []byte) error {
	var status struct {
		Message string `json:"message"`
		Code    int    `json:"code"`
	}
	if json.Unmarshal(body, &status) != nil || status.Message == "" {
		return err
	}
	if future := tooLarge.FindStringSubmatch(status.Message); future != nil {
		return fmt.Errorf("revision %s does not exist; the newest is %s", future[1], future[2])
	}
	if status.Code == http.StatusUnauthorized {
		return fmt.Errorf("the server does not accept the kubeconfig's credentials (%s)", status.Message)
	}
	return errors.New(status.Message)
}

// tooLarge is Kubernetes' message about a revision that there is not yet.
var tooLarge = regexp.MustCompile(`Too large resource version: (\d+), current: (\d+)$`)

// wordsOf is the text of an error; that a server was not reached it says without the request.
func wordsOf(err error) string {
	text := err.Error()
	var asking *url.Error
	if !errors.As(err, &asking) || !errors.Is(err, syscall.ECONNREFUSED) {
		return text
	}
	server, parseErr := url.Parse(asking.URL)
	if parseErr != nil {
		return text
	}
	return strings.Replace(text, asking.Error(), "the connection to the server "+server.Host+" was refused: does it run, and is that its address?", 1)
}
