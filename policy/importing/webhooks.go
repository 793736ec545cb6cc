package importing

import (
	"cmp"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// orderStep is the distance between the orders of what is imported and changes objects, so that others fit between them.
const orderStep = 10

// startOrder lets what is imported come after all in the bundle that changes objects.
func (m *importer) startOrder() {
	if m.Into == nil {
		return
	}
	last := int64(0)
	for i := range m.Into.Mutations {
		last = max(last, m.Into.Mutations[i].Order)
	}
	for i := range m.Into.Reviewers {
		last = max(last, m.Into.Reviewers[i].Order)
	}
	m.order = int(last) / orderStep * orderStep
}

// nextOrder returns the order of the next one that changes objects.
func (m *importer) nextOrder() int {
	m.order += orderStep
	return m.order
}

// webhooks imports webhook configurations. Mutating webhooks get orders that are those in which kube-apiserver asks them: by the
// names of their configurations, and after all policies.
func (m *importer) webhooks() error {
	var mutating, validating fields
	taken := map[string]bool{}
	configurations := m.objectsOf("MutatingWebhookConfiguration")
	slices.SortStableFunc(configurations, func(a, b *object) int { return cmp.Compare(a.name(), b.name()) })
	for _, o := range configurations {
		var c admissionv1.MutatingWebhookConfiguration
		if err := o.decode(&c); err != nil {
			return err
		}
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			common := m.webhook(o, i, &admissionv1.ValidatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector,
				ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
			})
			if common == nil {
				continue
			}
			f := fields{{"order", m.nextOrder()}}
			if w.ReinvocationPolicy != nil && *w.ReinvocationPolicy == admissionv1.IfNeededReinvocationPolicy {
				f.add("reinvocationPolicy", "IfNeeded")
			}
			mutating = append(mutating, member{unique(taken, nameFor(w.Name)), from(append(f, common...), o, "webhooks", fmt.Sprint(i))})
		}
	}
	taken = map[string]bool{}
	for _, o := range m.objectsOf("ValidatingWebhookConfiguration") {
		var c admissionv1.ValidatingWebhookConfiguration
		if err := o.decode(&c); err != nil {
			return err
		}
		for i := range c.Webhooks {
			if f := m.webhook(o, i, &c.Webhooks[i]); f != nil {
				validating = append(validating, member{unique(taken, nameFor(c.Webhooks[i].Name)), from(f, o, "webhooks", fmt.Sprint(i))})
			}
		}
	}
	if len(mutating)+len(validating) == 0 {
		return nil
	}
	m.counts["webhooks"] = len(mutating) + len(validating)
	var f fields
	f.add("mutating", mutating)
	f.add("validating", validating)
	m.write("webhooks.cue", m.ofTeam("admission", "webhooks"), f)
	return nil
}

// webhook returns a webhook of a configuration; nil if it cannot be declared in a bundle.
func (m *importer) webhook(o *object, i int, w *admissionv1.ValidatingWebhook) fields {
	at := []string{"webhooks", fmt.Sprint(i)}
	if !slices.Contains(w.AdmissionReviewVersions, "v1") {
		m.note(o, append(at, "admissionReviewVersions"), "the webhook %q is left out: it does not understand AdmissionReview v1", w.Name)
		return nil
	}
	var rules fields
	for n := range w.Rules {
		r, path := w.Rules[n].DeepCopy(), append(slices.Clip(at), "rules", fmt.Sprint(n))
		kept, versions := m.matched(o, fmt.Sprintf("rule %d of the webhook %q", n+1, w.Name), names{r.APIGroups, r.Resources}, r.APIVersions, path...)
		if r.APIGroups, r.Resources, r.APIVersions = kept.groups, kept.resources, versions; len(kept.resources) > 0 {
			rules = append(rules, member{fmt.Sprintf("rule-%d", n+1), from(webhookRule(r), o, path...)})
		}
	}
	if len(rules) == 0 {
		m.note(o, at, "the webhook %q is left out: no rule of it is about what is served", w.Name)
		return nil
	}
	f := fields{{"rules", rules}}
	f.addSelector("namespaceSelector", w.NamespaceSelector)
	f.addSelector("objectSelector", w.ObjectSelector)
	f.add("matchConditions", conditionsOf(o, w.MatchConditions, append(slices.Clip(at), "matchConditions")...))
	if w.MatchPolicy != nil && *w.MatchPolicy == admissionv1.Exact {
		f.add("matchPolicy", "Exact")
	}
	if w.FailurePolicy != nil && *w.FailurePolicy == admissionv1.Ignore {
		f.add("failurePolicy", "Ignore")
	}
	if w.TimeoutSeconds != nil && *w.TimeoutSeconds != 10 {
		f = append(f, member{"timeoutSeconds", int(*w.TimeoutSeconds)})
	}
	effects := "Some"
	if w.SideEffects != nil && (*w.SideEffects == admissionv1.SideEffectClassNone || *w.SideEffects == admissionv1.SideEffectClassNoneOnDryRun) {
		effects = string(*w.SideEffects)
	}
	f.add("sideEffects", effects)
	f = append(f, member{"clientConfig", m.webhookClient(o, at, w)})
	if o.name() != m.Team+"."+nameFor(w.Name) {
		f.add("configuration", o.name())
	}
	return f
}

func webhookRule(r *admissionv1.RuleWithOperations) fields {
	f := fields{{"apiGroups", r.APIGroups}}
	if !slices.Contains(r.APIVersions, "*") {
		f.add("apiVersions", r.APIVersions)
	}
	f.add("resources", r.Resources)
	var operations []string
	for _, x := range r.Operations {
		operations = append(operations, string(x))
	}
	f.add("operations", operations)
	if r.Scope != nil && *r.Scope != admissionv1.AllScopes {
		f.add("scope", string(*r.Scope))
	}
	return f
}

func (m *importer) webhookClient(o *object, at []string, w *admissionv1.ValidatingWebhook) (f fields) {
	c := w.ClientConfig
	if c.URL != nil {
		f.add("url", *c.URL)
	}
	if s := c.Service; s != nil {
		service := fields{{"namespace", s.Namespace}, {"name", s.Name}}
		if s.Path != nil {
			service.add("path", *s.Path)
		}
		if s.Port != nil && *s.Port != 443 {
			service = append(service, member{"port", int(*s.Port)})
		}
		f = append(f, member{"service", service})
		m.note(o, append(at, "clientConfig", "service"), "the webhook %q is at the service %s/%s: give `stele serve --webhook-services` a file with its address", w.Name, s.Namespace, s.Name)
	}
	f.add("caBundle", string(c.CABundle))
	if len(c.CABundle) == 0 {
		m.note(o, append(at, "clientConfig"), "the webhook %q has no caBundle: if something fills it in later, as cert-manager does, give it here", w.Name)
	}
	return f
}
