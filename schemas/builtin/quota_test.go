package builtin_test

import (
	"slices"
	"testing"

	"stele.dev/stele/schemas/builtin"
)

// own are the names of a policy.
type own struct{}

func (own) HasQuotaResource(name string) bool { return name == "storage.example.com" }
func (own) HasQuotaScope(name string) (has, values bool) {
	return name == "Gold" || name == "Tier", name == "Tier"
}

// The messages are those of Kubernetes 1.37, but for scopes of the policy.
func TestResourceQuotasAreValidated(t *testing.T) {
	type m = map[string]any
	hard := func(names ...string) m {
		h := m{}
		for i := 0; i < len(names); i += 2 {
			h[names[i]] = names[i+1]
		}
		return m{"hard": h}
	}
	with := func(spec m, more m) m {
		for k, v := range more {
			spec[k] = v
		}
		return spec
	}
	expression := func(scope, operator string, values ...any) m {
		e := m{"scopeName": scope, "operator": operator}
		if len(values) > 0 {
			e["values"] = values
		}
		return m{"scopeSelector": m{"matchExpressions": []any{e}}}
	}
	for name, tc := range map[string]struct {
		spec, old m
		want      []string
	}{
		"standard names": {spec: hard("cpu", "100", "memory", "10k", "requests.cpu", "100m", "pods", "10", "services", "0", "configmaps", "10", "hugepages-2Mi", "1")},
		"counts":         {spec: hard("count/widgets.example.com", "5", "example.com/gpu", "3", "requests.example.com/gpu", "1500m")},
		"of the policy":  {spec: hard("storage.example.com", "1500m")},
		"storage": {spec: hard("storage", "10"), want: []string{
			`spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota`}},
		"an unknown name": {spec: hard("disk", "1"), want: []string{
			`spec.hard[disk]: Invalid value: "disk": must be a standard resource type or fully qualified`,
			`spec.hard[disk]: Invalid value: "disk": must be a standard resource for quota`}},
		"negative": {spec: hard("pods", "-10"), want: []string{`spec.hard[pods]: Invalid value: "-10": must be greater than or equal to 0`}},
		"fractions": {spec: hard("count/x", "1500m", "pods", "100m"), want: []string{
			`spec.hard[count/x]: Invalid value: "1500m": must be an integer`, `spec.hard[pods]: Invalid value: "100m": must be an integer`}},
		"pairs": {spec: with(hard("cpu", "1"), m{"scopes": []any{"Terminating", "NotTerminating"}}), want: []string{
			`spec.scopes: Invalid value: ["Terminating","NotTerminating"]: conflicting scopes`}},
		"an unknown scope": {spec: with(hard("cpu", "1"), m{"scopes": []any{"foo"}}), want: []string{`spec.scopes: Invalid value: ["foo"]: unsupported scope`}},
		"a scope that does not fit": {spec: with(hard("configmaps", "1"), m{"scopes": []any{"BestEffort"}}), want: []string{
			`spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource`}},
		"a scope of the policy": {spec: with(hard("configmaps", "1"), m{"scopes": []any{"Gold"}})},
		"one with values": {spec: with(hard("configmaps", "1"), m{"scopes": []any{"Tier"}}), want: []string{
			`spec.scopes: Invalid value: ["Tier"]: the scope Tier has values; name them in scopeSelector`}},
		"values":  {spec: with(hard("configmaps", "1"), expression("Tier", "In", "gold"))},
		"classes": {spec: with(hard("pods", "1"), expression("PriorityClass", "In", "high"))},
		"no values": {spec: with(hard("pods", "1"), expression("PriorityClass", "In")), want: []string{
			"spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"}},
		"values of what exists": {spec: with(hard("pods", "1"), expression("PriorityClass", "Exists", "a")), want: []string{
			"spec.scopeSelector.matchExpressions.values: Invalid value: [\"a\"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"}},
		"an operator": {spec: with(hard("pods", "1"), expression("PriorityClass", "Is", "a")), want: []string{
			`spec.scopeSelector.matchExpressions.operator: Invalid value: "Is": not a valid selector operator`}},
		"values of a scope without": {spec: with(hard("configmaps", "1"), expression("Gold", "In", "a")), want: []string{
			`spec.scopeSelector.matchExpressions.operator: Invalid value: "In": must be 'Exists' or 'DoesNotExist': the scope Gold has no values`}},
		"other scopes than before": {spec: with(hard("cpu", "1"), m{"scopes": []any{"Terminating"}}), old: hard("cpu", "1"), want: []string{
			`spec.scopes: Invalid value: ["Terminating"]: field is immutable`}},
	} {
		var old m
		if tc.old != nil {
			old = m{"spec": tc.old}
		}
		var got []string
		for _, err := range builtin.ValidateResourceQuota(m{"spec": tc.spec}, old, own{}) {
			got = append(got, err.Error())
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q\nwant %q", name, got, tc.want)
		}
	}
}
