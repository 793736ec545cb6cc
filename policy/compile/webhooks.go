package compile

import (
	"fmt"
	"slices"
	"time"

	"cuelang.org/go/cue"
	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/validation"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/evaluation"
)

// webhooks compiles the admission webhooks of a team.
func (c *compiler) webhooks(f *policy.Form, team string, t cue.Value) {
	for _, kind := range []string{"mutating", "validating"} {
		for name, x := range c.Fields(t, "admission.webhooks."+kind) {
			f.Reviewers = append(f.Reviewers, c.webhook(team+"/webhooks/"+kind+"/"+name, x, kind == "mutating"))
		}
	}
}

// webhook compiles one admission webhook.
func (c *compiler) webhook(id string, v cue.Value, mutating bool) policy.Reviewer {
	r := policy.Reviewer{ID: id, Mutating: mutating, Webhook: &policy.WebhookClient{}, Source: evaluation.Position(v)}
	if !c.Sound(v) {
		return r
	}
	if faults := validation.IsDNS1123Subdomain(r.Name()); len(faults) > 0 {
		c.Add(r.Source, v.Path().String(), fmt.Sprintf("%q can be the name of no webhook", r.Name()), "use lower-case letters, digits, - and dots: check.example.com")
	}
	of := c.reviewRules(v, &r)
	r.NamespaceSelector, r.ObjectSelector = c.selector(v, "namespaceSelector"), c.selector(v, "objectSelector")
	for name, x := range c.Fields(v, "matchConditions") {
		if e := c.expressionAt(x, cel.BoolType, of, c.scopes.forAdmission); e != nil {
			r.Conditions = append(r.Conditions, policy.Variable{Name: name, Expression: *e})
		}
	}
	c.reviewerOptions(v, &r)
	seconds := 0
	c.DecodeField(v, "timeoutSeconds", &seconds)
	r.Timeout = time.Duration(seconds) * time.Second
	r.Exact = c.word(v, "matchPolicy") == "Exact"
	r.Configuration = c.word(v, "configuration")
	c.webhookClient(v.LookupPath(cue.ParsePath("clientConfig")), r.Webhook)
	return r
}

// reviewerOptions reads what webhooks and admission plugins have in common.
func (c *compiler) reviewerOptions(v cue.Value, r *policy.Reviewer) {
	r.Ignore = c.word(v, "failurePolicy") == "Ignore"
	r.SideEffects = c.word(v, "sideEffects")
	if r.Mutating {
		r.Again = c.word(v, "reinvocationPolicy") == "IfNeeded"
		r.Order = c.inOrder(v, r.ID)
	}
}

func (c *compiler) word(v cue.Value, field string) (text string) {
	c.DecodeField(v, field, &text)
	return text
}

// reviewRules compiles the rules of a webhook, and returns the types of objects that it sees.
func (c *compiler) reviewRules(v cue.Value, r *policy.Reviewer) (of []objectType) {
	for id, x := range c.Fields(v, "rules") {
		rule := policy.ReviewRule{ID: r.ID + "/" + id, Source: evaluation.Position(x)}
		c.DecodeField(x, "apiGroups", &rule.APIGroups)
		c.DecodeField(x, "apiVersions", &rule.APIVersions)
		c.DecodeField(x, "resources", &rule.Resources)
		c.DecodeField(x, "operations", &rule.Operations)
		if rule.Scope = c.word(x, "scope"); rule.Scope == "*" {
			rule.Scope = ""
		}
		for field, list := range map[string][]string{"apiGroups": rule.APIGroups, "apiVersions": rule.APIVersions, "resources": rule.Resources, "operations": rule.Operations} {
			if len(list) == 0 {
				c.Add(rule.Source, x.Path().String()+"."+field, "a rule without "+field+" matches nothing", "")
			}
		}
		if len(rule.Operations) > 0 && !slices.ContainsFunc(rule.Operations, func(o string) bool { return o != "CONNECT" }) {
			c.Add(element(x, "operations", 0), x.Path().String()+".operations", "nothing here can be connected to: the rule matches nothing", "name CREATE, UPDATE or DELETE")
		}
		c.admissionNames(rule.APIGroups, rule.Resources, x)
		for _, t := range c.scopes.objectTypes(rule.APIGroups, rule.APIVersions, rule.Resources) {
			if !slices.ContainsFunc(of, func(o objectType) bool { return o.name == t.name }) {
				of = append(of, t)
			}
		}
		r.Rules = append(r.Rules, rule)
	}
	if len(r.Rules) == 0 {
		c.Add(r.Source, v.Path().String()+".rules", "a webhook without rules is never asked", "add rules: name: {apiGroups: …, resources: …, operations: …}")
	}
	if len(of) == 0 || slices.ContainsFunc(of, func(o objectType) bool { return o.name == "" }) {
		return []objectType{anyObject}
	}
	return all(of)
}

// webhookClient compiles where a webhook is.
func (c *compiler) webhookClient(v cue.Value, w *policy.WebhookClient) {
	at, path := evaluation.Position(v), v.Path().String()
	c.DecodeField(v, "url", &w.URL)
	service := v.LookupPath(cue.ParsePath("service"))
	switch {
	case service.Exists() == (w.URL != ""):
		c.Add(at, path, "a webhook is at a url, or at a service", "give one of them")
	case service.Exists():
		w.Service = &policy.WebhookService{}
		c.Decode(service, w.Service)
		if len(validation.IsDNS1123Label(w.Service.Namespace)) > 0 || len(validation.IsDNS1035Label(w.Service.Name)) > 0 {
			c.Add(evaluation.Position(service), service.Path().String(), fmt.Sprintf("no service can be %q in the namespace %q", w.Service.Name, w.Service.Namespace), "")
		}
	default:
		if why := policy.WrongWebhookURL(w.URL); why != "" {
			c.Add(evaluation.Position(v.LookupPath(cue.ParsePath("url"))), path+".url", why, "write https://HOST:PORT/PATH")
		}
	}
	if c.DecodeField(v, "caBundle", &w.CABundle); v.LookupPath(cue.ParsePath("caBundle")).Exists() {
		if why := policy.WrongCABundle(w.CABundle); why != "" {
			c.Add(evaluation.Position(v.LookupPath(cue.ParsePath("caBundle"))), path+".caBundle", why, "give the certificates in PEM")
		}
	}
	c.DecodeField(v, "clientCertificate.secret", &w.ClientCertificate)
	c.DecodeField(v, "bearerToken.secret", &w.BearerToken)
}
