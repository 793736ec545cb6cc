package table

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unset is what kube-apiserver prints of params that a policy does not have.
const unset = "<unset>"

func number(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "integer", Description: description}
}

var webhooksLayout = &layout{
	[]metav1.TableColumnDefinition{nameHeader, number("Webhooks", "How many webhooks the configuration has."), ageHeader},
	func(o gjson.Result, now time.Time) []any {
		return []any{name(o), count(o.Get("webhooks")), age(o, now)}
	},
}

// policyLayout is that of policies of admission, whose expressions are at a path.
func policyLayout(column, path string) *layout {
	return &layout{
		[]metav1.TableColumnDefinition{nameHeader, number(column, "How many "+strings.ToLower(column)+" the policy has."), text("ParamKind", "The kind of the params."), ageHeader},
		func(o gjson.Result, now time.Time) []any {
			kind := unset
			if of := o.Get("spec.paramKind"); of.Exists() {
				kind = of.Get("apiVersion").String() + "/" + of.Get("kind").String()
			}
			return []any{name(o), count(o.Get(path)), kind, age(o, now)}
		},
	}
}

var policyBindingLayout = &layout{
	[]metav1.TableColumnDefinition{nameHeader, text("PolicyName", "The policy."), text("ParamRef", "The params."), ageHeader},
	func(o gjson.Result, now time.Time) []any {
		return []any{name(o), o.Get("spec.policyName").String(), paramRef(o.Get("spec.paramRef")), age(o, now)}
	},
}

// paramRef describes a reference to params as kube-apiserver does.
func paramRef(ref gjson.Result) string {
	if of := ref.Get("name").String(); of != "" {
		if in := ref.Get("namespace").String(); in != "" {
			return in + "/" + of
		}
		return "*/" + of // whether params have a namespace is not known here
	}
	var selector metav1.LabelSelector
	raw := ref.Get("selector").Raw
	if raw == "" || json.Unmarshal([]byte(raw), &selector) != nil {
		return unset
	}
	return selector.String()
}
