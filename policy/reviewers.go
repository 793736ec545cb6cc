package policy

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/schemas"
)

// Reviewer is what reviews writes outside of the policy: an admission webhook or an admission plugin. The policy says what
// is asked, in which order, and what happens if it cannot be asked. The operator says where it is.
type Reviewer struct {
	// ID is team/webhooks/mutating/name, team/webhooks/validating/name, or that of an admission plugin.
	ID string `json:"id"`
	// Mutating is set if its answers change objects. Its Order is its place among all that changes objects.
	Mutating bool  `json:"mutating,omitempty"`
	Order    int64 `json:"order,omitempty"`
	// Rules select requests: one that any of them matches.
	Rules             []ReviewRule          `json:"rules"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	ObjectSelector    *metav1.LabelSelector `json:"objectSelector,omitempty"`
	Conditions        []Variable            `json:"conditions,omitempty"`
	// ResourceNames are the names of the objects that it is asked about; empty for all. Excludes are requests that it is not
	// asked about. Both are those of a plugin's match.
	ResourceNames []string  `json:"resourceNames,omitempty"`
	Excludes      []Exclude `json:"excludes,omitempty"`
	// Exact is set if requests for other versions of the kind do not match (matchPolicy Exact).
	Exact bool `json:"exact,omitempty"`
	// Ignore is set if a write goes on when the reviewer cannot be asked (failurePolicy Ignore).
	Ignore  bool          `json:"ignore,omitempty"`
	Timeout time.Duration `json:"timeout"`
	// SideEffects is None, NoneOnDryRun, or Some: then dry runs that it would review are refused.
	SideEffects string `json:"sideEffects"`
	// Again is set if it is asked again when the object was changed after its answer (reinvocationPolicy IfNeeded).
	Again bool `json:"again,omitempty"`
	// Webhook is where the webhook is; nil for a plugin. Plugin is the name of the plugin; "" for a webhook.
	Webhook *WebhookClient `json:"webhook,omitempty"`
	Plugin  string         `json:"plugin,omitempty"`
	// Configuration is the name of the configuration that shows the webhook, with others; "" for one of its own.
	Configuration string           `json:"configuration,omitempty"`
	Source        schemas.Position `json:"source,omitzero"`
}

// ShownName returns the name of the configuration that shows the webhook.
func (r *Reviewer) ShownName() string {
	return cmp.Or(r.Configuration, OwningTeam(r.ID)+"."+r.Name())
}

// ReviewRule selects requests, as a rule of a webhook in Kubernetes.
type ReviewRule struct {
	ID          string   `json:"id"`
	APIGroups   []string `json:"apiGroups"`
	APIVersions []string `json:"apiVersions"`
	Resources   []string `json:"resources"`
	Operations  []string `json:"operations"`
	// Scope is Cluster, Namespaced, or "" for both.
	Scope  string           `json:"scope,omitempty"`
	Source schemas.Position `json:"source,omitzero"`
}

// WebhookClient says where a webhook is, and how it is trusted.
type WebhookClient struct {
	// URL is its address; "" if Service is set.
	URL     string          `json:"url,omitempty"`
	Service *WebhookService `json:"service,omitempty"`
	// CABundle has the certificates that must have signed its certificate, in PEM; "" for those of the system.
	CABundle string `json:"caBundle,omitempty"`
	// ClientCertificate and BearerToken are the names of secrets in the operator's folder; "" for none.
	ClientCertificate string `json:"clientCertificate,omitempty"`
	BearerToken       string `json:"bearerToken,omitempty"`
}

// WebhookService names a service. The operator's table has its address.
type WebhookService struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Path      string `json:"path,omitempty"`
	Port      int    `json:"port"`
}

// Name returns the name of the reviewer, without its team.
func (r *Reviewer) Name() string { return r.ID[strings.LastIndex(r.ID, "/")+1:] }

// Reads returns the rule as the match of an admission rule.
func (r *ReviewRule) Reads() *Match {
	return &Match{APIGroups: r.APIGroups, APIVersions: r.APIVersions, Resources: r.Resources, Operations: r.Operations}
}

// Scopes reports whether the rule is about objects in namespaces, or about those outside.
func (r *ReviewRule) Scopes(namespaced bool) bool {
	return r.Scope == "" || r.Scope == "Namespaced" == namespaced
}

// SideEffectsSome is the value of SideEffects of a reviewer that has side effects in dry runs as well.
const SideEffectsSome = "Some"

// What returns what the reviewer is: webhook or plugin.
func (r *Reviewer) What() string {
	if r.Webhook != nil {
		return "webhook"
	}
	return "plugin"
}

// WrongWebhookURL returns what is wrong with the address of a webhook, as kube-apiserver sees it; "" if nothing is.
func WrongWebhookURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "the url cannot be read: " + err.Error()
	case u.Scheme != "https":
		return "a webhook is asked by TLS only: the url does not begin with https://"
	case u.Host == "" || u.Hostname() == "":
		return "the url has no host"
	case u.User != nil:
		return "the url has a user: credentials are the operator's, in the folder of --webhook-secrets-dir"
	case u.RawQuery != "" || u.Fragment != "":
		return "the url has a query or a fragment, which are not sent"
	}
	return ""
}

// WrongCABundle returns what is wrong with certificates in PEM; "" if nothing is.
func WrongCABundle(text string) string {
	rest, n := []byte(text), 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Sprintf("it has a block of type %s", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return "one of its certificates cannot be read: " + err.Error()
		}
		n++
	}
	if n == 0 || strings.TrimSpace(string(rest)) != "" {
		return "it is not a list of certificates in PEM"
	}
	return ""
}
