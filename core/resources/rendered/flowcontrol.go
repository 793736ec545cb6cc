// This file shows the flow schemas and priority levels in force as objects of flowcontrol.apiserver.k8s.io/v1, so
// that Kubernetes clients find them. They are rendered from the policy in force, with those that every
// policy has.

package rendered

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"

	"github.com/tidwall/gjson"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/catalog/openapi"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/flows"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas"
)

// WatchesAnnotation has the limit of watches of a flow schema, for which FlowSchemas have no field.
const WatchesAnnotation = "stele.dev/watches"

// FlowControl are the kinds of the group. OpenAPI describes them as writable: kubectl asks OpenAPI how to validate a write
// before it sends it, and only then shows why it was refused.
var FlowControl = []*Kind{
	byPrecedence(flowControlKind(flowcontrolv1.FlowSchema{}, flows.SchemaResource, schemaEntries, "flow.flowSchemas")),
	flowControlKind(flowcontrolv1.PriorityLevelConfiguration{}, flows.LevelResource, levelEntries, "flow.priorityLevels"),
}

// byPrecedence makes tables of a kind show the schema first that is tried first, as those of kube-apiserver do. Schemas with the
// same precedence are in the order of their names.
func byPrecedence(k *Kind) *Kind {
	k.TableOrder = func(a, b *objects.Object) int {
		const field = "spec.matchingPrecedence"
		return cmp.Compare(gjson.GetBytes(a.JSON, field).Int(), gjson.GetBytes(b.JSON, field).Int())
	}
	return k
}

// flowControlKind returns the rendered kind of a Go type.
func flowControlKind(object any, plural string, entries func(*policy.Form) []*Entry, part string) *Kind {
	name, content := openapi.Describe(object)
	v := openapi.NewVersion(schemas.Kind{
		Group: flowcontrolv1.GroupName, Kind: name, Plural: plural, StorageVersion: flowcontrolv1.SchemeGroupVersion.Version,
	}, content)
	v.AllowCreateOnUpdate = true // the error of a refused create names the place in the policy
	return &Kind{Version: v, Type: reflect.TypeOf(object), Entries: entries, Find: ByName(entries), Counted: true, Section: "flowControl", Says: "flow control is", Part: part + " of the bundle"}
}

func schemaEntries(f *policy.Form) (list []*Entry) {
	inForce, _ := flows.InForce(&f.Flow)
	for _, s := range inForce {
		e := flowControlEntry(s.Name, s.ID, s.Source, s.Builtin)
		if s.Watches > 0 {
			e.Annotations = map[string]string{WatchesAnnotation: strconv.Itoa(s.Watches)}
		}
		e.Render = func(t metav1.TypeMeta, meta metav1.ObjectMeta) any {
			return &flowcontrolv1.FlowSchema{TypeMeta: t, ObjectMeta: meta, Spec: FlowSchemaSpec(&s.FlowSchema), Status: flowcontrolv1.FlowSchemaStatus{
				Conditions: []flowcontrolv1.FlowSchemaCondition{{ // as the controller of kube-apiserver writes it
					Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionFalse, Reason: "Found", LastTransitionTime: meta.CreationTimestamp,
					Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", s.PriorityLevel)}},
			}}
		}
		list = append(list, e)
	}
	return list
}

func levelEntries(f *policy.Form) (list []*Entry) {
	_, inForce := flows.InForce(&f.Flow)
	for _, l := range inForce {
		e := flowControlEntry(l.Name, l.ID, l.Source, l.Builtin)
		e.Render = func(t metav1.TypeMeta, meta metav1.ObjectMeta) any {
			return &flowcontrolv1.PriorityLevelConfiguration{TypeMeta: t, ObjectMeta: meta, Spec: PriorityLevelSpec(l)}
		}
		list = append(list, e)
	}
	return list
}

func flowControlEntry(name, id string, source schemas.Position, builtin bool) *Entry {
	e := &Entry{Name: name, ID: id, Source: source, Builtin: builtin, Replaceable: !flows.Mandatory(name)}
	if builtin {
		e.Annotations = map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"} // the server keeps it up to date
	}
	return e
}
