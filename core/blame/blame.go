package blame

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/discovery"
)

// Group, Version, Plural and Kind name the API of blames.
const (
	Group   = "log.stele.dev"
	Version = "v1"
	Plural  = "blames"
	Kind    = "Blame"
)

// Resource returns the discovery entry of blames.
func Resource() discovery.Resource {
	return discovery.Resource{Group: Group, Version: Version, APIResource: metav1.APIResource{
		Name: Plural, SingularName: "blame", Kind: Kind, Verbs: metav1.Verbs{"create"},
	}}
}

// Blame asks who set each field of an object.
type Blame struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status,omitzero"`
}

// Spec names the object, and the moment at which to look at it. The default is now.
type Spec struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version,omitempty"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Revision  uint64 `json:"revision,omitempty"`
	Time      string `json:"time,omitempty"`
}

// Status is the answer.
type Status struct {
	UID string `json:"uid,omitempty"`
	// Revision is the revision at which the object was looked at.
	Revision uint64 `json:"revision,omitempty"`
	// ObjectRevision is the revision of the object's last change up to Revision.
	ObjectRevision uint64  `json:"objectRevision,omitempty"`
	Fields         []Field `json:"fields"`
}

// These are the types of events that gave a field its value.
const (
	Created   = "Created"   // the user created the object
	Updated   = "Updated"   // the user changed the field
	Defaulted = "Defaulted" // the schema's default; the request did not set the field
	Rendered  = "Rendered"  // a default that a new policy added to a stored object
	Server    = "Server"    // the server set the field
	Earlier   = "Earlier"   // the value is older than the kept history of the kind
)

// Notes are shown to users.
const (
	ByServer     = "set by the server"
	BeforeWindow = "before the window"
)

// Field is one field, and the change that gave it its value.
type Field struct {
	Path  string `json:"path"`
	Value any    `json:"value"`
	Type  string `json:"type"`
	Note  string `json:"note,omitempty"`
	// Revision and Time tell since when the field has the value. They are empty if that is before the kept history.
	Revision     uint64 `json:"revision,omitempty"`
	Time         string `json:"time,omitempty"`
	Actor        string `json:"actor,omitempty"`
	Impersonator string `json:"impersonator,omitempty"`
	FieldManager string `json:"fieldManager,omitempty"`
	Verb         string `json:"verb,omitempty"`
	Subresource  string `json:"subresource,omitempty"`
	// Policy is the digest of the policy in force.
	Policy string `json:"policy,omitempty"`
	// Rule and Source name the default that gave the value: the id of the kind in the bundle, and the file and line of
	// the default.
	Rule   string `json:"rule,omitempty"`
	Source string `json:"source,omitempty"`
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Blame) SwaggerDoc() map[string]string {
	return map[string]string{
		"":       "Blame asks of every field of an object since when it has had its value, and who gave it that. It is answered, and not stored. Whoever asks must be allowed to get the object.",
		"spec":   "Which object, and at which moment.",
		"status": "The answer.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Spec) SwaggerDoc() map[string]string {
	return map[string]string{
		"":          "Spec names an object, and a moment.",
		"group":     "API group of the object; empty for the core group.",
		"version":   "Version of the group; any if it is empty.",
		"resource":  "Plural name of the resource.",
		"namespace": "Namespace of the object, if it is in one.",
		"name":      "Name of the object.",
		"revision":  "Revision at which the object is looked at; now if there is neither this nor a time.",
		"time":      "Time of RFC 3339 at which the object is looked at.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Status) SwaggerDoc() map[string]string {
	return map[string]string{
		"":               "Status is what became of each field.",
		"uid":            "UID of the object.",
		"revision":       "Revision at which the object was looked at.",
		"objectRevision": "Revision of the last change of the object up to there.",
		"fields":         "All fields with a value of their own, but for apiVersion, kind, metadata.resourceVersion and metadata.managedFields.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Field) SwaggerDoc() map[string]string {
	return map[string]string{
		"":             "Field is one field, and who gave it its value.",
		"path":         "Path of the field, as spec.containers[0].image; items of lists of type map are named by their keys, as spec.ports[name=http].port.",
		"value":        "Value that it has.",
		"type":         "What gave it that: Created or Updated (a request), Defaulted (the schema, in a request that did not say it), Rendered (a policy that came in force), Server, or Earlier (before the window of the kind).",
		"note":         "The same for people, where it was no request.",
		"revision":     "Revision since which it has had the value.",
		"time":         "Time of that revision.",
		"actor":        "User who made the change, or activated the policy.",
		"impersonator": "User who sent the request, if that was another one.",
		"fieldManager": "Field manager that the request named, or that was made of its user agent.",
		"verb":         "Verb of the request.",
		"subresource":  "Subresource that was written, if it was one.",
		"policy":       "Digest of the policy that was in force.",
		"rule":         "Kind whose schema has the default, by its id in the bundle.",
		"source":       "File and line of the default.",
	}
}
