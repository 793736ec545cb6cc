package table

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"stele.dev/stele/policy"
)

// layout tells how kube-apiserver prints a built-in kind. The cells of these kinds are computed, and often have
// another type than their column.
type layout struct {
	headers []metav1.TableColumnDefinition
	row     func(object gjson.Result, now time.Time) []any
}

// layoutOf returns the layout of a kind, nil if its columns describe it. It looks at the kind's name only: events are
// printed alike in both groups.
func layoutOf(v *policy.Version) *layout {
	if v.Kind == nil || !v.Kind.Builtin {
		return nil
	}
	if l, ok := layouts[v.Kind.Kind.Kind]; ok {
		return l
	}
	if len(v.Columns) == 0 {
		return plain
	}
	return nil
}

var layouts = map[string]*layout{
	"Event": {eventHeaders, eventRow},
	"Namespace": {
		[]metav1.TableColumnDefinition{nameHeader, text("Status", "The phase of the namespace."), ageHeader},
		func(o gjson.Result, now time.Time) []any {
			return []any{name(o), o.Get("status.phase").String(), age(o, now)}
		},
	},
	"ConfigMap": {
		[]metav1.TableColumnDefinition{nameHeader, text("Data", corev1.ConfigMap{}.SwaggerDoc()["data"]), ageHeader},
		func(o gjson.Result, now time.Time) []any {
			return []any{name(o), count(o.Get("data")) + count(o.Get("binaryData")), age(o, now)}
		},
	},
	"Secret": {
		[]metav1.TableColumnDefinition{nameHeader, text("Type", corev1.Secret{}.SwaggerDoc()["type"]), text("Data", corev1.Secret{}.SwaggerDoc()["data"]), ageHeader},
		func(o gjson.Result, now time.Time) []any {
			return []any{name(o), o.Get("type").String(), count(o.Get("data")), age(o, now)}
		},
	},
	"ServiceAccount": {
		[]metav1.TableColumnDefinition{nameHeader, ageHeader},
		func(o gjson.Result, now time.Time) []any { return []any{name(o), age(o, now)} },
	},
	"Lease": {
		[]metav1.TableColumnDefinition{nameHeader, text("Holder", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"]), ageHeader},
		func(o gjson.Result, now time.Time) []any {
			return []any{name(o), o.Get("spec.holderIdentity").String(), age(o, now)}
		},
	},
	"ResourceQuota": {
		[]metav1.TableColumnDefinition{
			nameHeader, text("Request", "Request represents a minimum amount of cpu/memory that a container may consume."),
			text("Limit", "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node."), ageHeader,
		},
		quotaRow,
	},
	"MutatingWebhookConfiguration":     webhooksLayout,
	"ValidatingWebhookConfiguration":   webhooksLayout,
	"MutatingAdmissionPolicy":          policyLayout("Mutations", "spec.mutations"),
	"ValidatingAdmissionPolicy":        policyLayout("Validations", "spec.validations"),
	"MutatingAdmissionPolicyBinding":   policyBindingLayout,
	"ValidatingAdmissionPolicyBinding": policyBindingLayout,
	"RoleBinding":                      {bindingHeaders("roleBinding", rbacv1.RoleBinding{}.SwaggerDoc()["roleRef"]), bindingRow},
	"ClusterRoleBinding":               {bindingHeaders("clusterRoleBinding", rbacv1.ClusterRoleBinding{}.SwaggerDoc()["roleRef"]), bindingRow},
	"CustomResourceDefinition": {
		[]metav1.TableColumnDefinition{
			nameHeader, text("Scope", "Cluster/Namespaced"), text("Versions", "Served versions"), createdHeader,
			wide("Group", "API group"), wide("Kind", "CustomResource kind"), wide("ShortNames", "Short names"),
			{Name: "Established", Type: "boolean", Priority: 1, Description: "Established status"},
		},
		definitionRow,
	},
	"FlowSchema": {
		[]metav1.TableColumnDefinition{
			nameHeader, text("PriorityLevel", flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"]),
			text("MatchingPrecedence", flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()["matchingPrecedence"]),
			text("DistinguisherMethod", flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()["distinguisherMethod"]), ageHeader,
			text("MissingPL", "references a broken or non-existent PriorityLevelConfiguration"),
		},
		flowSchemaRow,
	},
	"PriorityLevelConfiguration": {
		[]metav1.TableColumnDefinition{
			nameHeader, text("Type", flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"]),
			text("NominalConcurrencyShares", flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"]),
			text("Queues", flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()["queues"]), text("HandSize", flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()["handSize"]),
			text("QueueLengthLimit", flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()["queueLengthLimit"]), ageHeader,
		},
		priorityLevelRow,
	},
}

// plain is the layout of kinds that have no special one in kube-apiserver.
var plain = &layout{
	[]metav1.TableColumnDefinition{nameHeader, createdHeader},
	func(o gjson.Result, _ time.Time) []any { return []any{name(o), created(o)} },
}

var (
	nameHeader    = metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name", Description: docs["name"]}
	ageHeader     = text("Age", docs["creationTimestamp"])
	createdHeader = metav1.TableColumnDefinition{Name: "Created At", Type: "date", Description: docs["creationTimestamp"]}
)

func text(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "string", Description: description}
}

// wide returns a column that is only shown on demand.
func wide(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "string", Description: description, Priority: 1}
}

func name(o gjson.Result) string { return o.Get("metadata.name").String() }

func age(o gjson.Result, now time.Time) string {
	return ageOf(o.Get("metadata.creationTimestamp"), now)
}

// ageOf returns how long ago a time is.
func ageOf(v gjson.Result, now time.Time) string {
	at, err := time.Parse(time.RFC3339, v.String())
	if err != nil {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(at))
}

func created(o gjson.Result) string {
	at, _ := time.Parse(time.RFC3339, o.Get("metadata.creationTimestamp").String()) // as in kube-apiserver, the zero time if there is none
	return at.UTC().Format(time.RFC3339)
}

// count returns the number of entries of a list or a map.
func count(v gjson.Result) (n int64) {
	v.ForEach(func(_, _ gjson.Result) bool { n++; return true })
	return n
}

func bindingHeaders(kind, roleRef string) []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		nameHeader, text("Role", roleRef), ageHeader,
		wide("Users", "Users in the "+kind), wide("Groups", "Groups in the "+kind), wide("ServiceAccounts", "ServiceAccounts in the "+kind),
	}
}

func bindingRow(o gjson.Result, now time.Time) []any {
	subjects := map[string][]string{}
	o.Get("subjects").ForEach(func(_, s gjson.Result) bool {
		kind, who := s.Get("kind").String(), s.Get("name").String()
		if kind == rbacv1.ServiceAccountKind {
			who = s.Get("namespace").String() + "/" + who
		}
		subjects[kind] = append(subjects[kind], who)
		return true
	})
	of := func(kind string) string { return strings.Join(subjects[kind], ", ") }
	return []any{
		name(o), o.Get("roleRef.kind").String() + "/" + o.Get("roleRef.name").String(), age(o, now),
		of(rbacv1.UserKind), of(rbacv1.GroupKind), of(rbacv1.ServiceAccountKind),
	}
}

// quotaRow shows how much is used of what; what the limits of containers add up to has a column of its own.
func quotaRow(o gjson.Result, now time.Time) []any {
	hard, used := o.Get("status.hard").Map(), o.Get("status.used").Map()
	var requests, limits []string
	for _, resource := range slices.Sorted(maps.Keys(hard)) {
		is := "0"
		if u, ok := used[resource]; ok {
			is = u.String()
		}
		entry := resource + ": " + is + "/" + hard[resource].String()
		if strings.HasPrefix(resource, "limits.") {
			limits = append(limits, entry)
		} else {
			requests = append(requests, entry)
		}
	}
	return []any{name(o), strings.Join(requests, ", "), strings.Join(limits, ", "), age(o, now)}
}

func flowSchemaRow(o gjson.Result, now time.Time) []any {
	method, missing := "<none>", "?"
	if m := o.Get("spec.distinguisherMethod.type"); m.Exists() {
		method = m.String()
	}
	if c := o.Get(`status.conditions.#(type=="Dangling").status`); c.Exists() {
		missing = c.String()
	}
	return []any{name(o), o.Get("spec.priorityLevelConfiguration.name").String(), o.Get("spec.matchingPrecedence").Int(), method, age(o, now), missing}
}

func priorityLevelRow(o gjson.Result, now time.Time) []any {
	number := func(path string) any {
		if n := o.Get("spec.limited." + path); n.Exists() {
			return n.Int()
		}
		return "<none>"
	}
	return []any{name(o), o.Get("spec.type").String(), number("nominalConcurrencyShares"), number("limitResponse.queuing.queues"),
		number("limitResponse.queuing.handSize"), number("limitResponse.queuing.queueLengthLimit"), age(o, now)}
}

func definitionRow(o gjson.Result, _ time.Time) []any {
	spec := o.Get("spec")
	var versions, shortNames []string
	spec.Get("versions").ForEach(func(_, v gjson.Result) bool {
		if v.Get("served").Bool() {
			label := v.Get("name").String()
			if v.Get("storage").Bool() {
				label += "(storage)"
			}
			versions = append(versions, label)
		}
		return true
	})
	slices.Sort(versions)
	for _, n := range spec.Get("names.shortNames").Array() {
		shortNames = append(shortNames, n.String())
	}
	return []any{
		name(o), spec.Get("scope").String(), strings.Join(versions, ","), created(o), spec.Get("group").String(), spec.Get("names.kind").String(),
		strings.Join(shortNames, ","), o.Get(`status.conditions.#(type=="Established").status`).String() == "True",
	}
}
