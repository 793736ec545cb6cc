package audit

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/audit/hashing"
	"stele.dev/stele/schemas"
)

// status appends the Status of the answer: the code, and the rest if the answer is a Status. If asObject is set, it is an
// object of its own, as the client got it.
func (r *record) status(b []byte, asObject bool) []byte {
	code := r.e.Meta.GetRequest().GetStatus()
	b = append(b, '{')
	if asObject {
		b = append(b, `"kind":"Status","apiVersion":"v1",`...)
	}
	b = append(b, `"metadata":{}`...)
	switch {
	case r.failed():
		b = appendField(b, "status", "Failure")
		b = appendField(b, "message", r.decision.GetMessage())
		b = appendField(b, "reason", r.decision.GetReason())
		if details := r.decision.GetDetails(); details != "" {
			b = append(appendName(b, "details"), details...)
		}
	case r.answersStatus():
		b = appendField(b, "status", "Success")
		b = append(b, `,"details":{`...)
		b = appendField(b, "name", r.object.GetName())
		b = appendField(b, "group", r.object.GetGroup())
		b = appendField(b, "kind", r.object.GetResource())
		b = appendField(b, "uid", r.object.GetUid())
		b = append(b, '}')
		if asObject {
			code = 0 // a Status of a success has none
		}
	}
	if code != 0 {
		b = strconv.AppendUint(appendName(b, "code"), uint64(code), 10)
	}
	return append(b, '}')
}

// badRequest is the least HTTP status of a failure.
const badRequest = 400

// failed reports whether the answer is a Status of a failure.
func (r *record) failed() bool {
	return r.decision != nil && r.e.Meta.GetRequest().GetStatus() >= badRequest
}

// answersStatus reports whether the answer of a write is a Status: that of a delete that removed the object at once.
// Deletes of two resources answer with the object, as in kube-apiserver.
func (r *record) answersStatus() bool {
	m := r.e.Meta
	if r.audit == nil || m.GetType() != logpb.Type_TYPE_DELETED || m.GetRequest().GetVerb() != "delete" {
		return false
	}
	o := m.GetObject()
	return o.GetGroup() != "" || o.GetResource() != "namespaces" && o.GetResource() != "serviceaccounts"
}

// bodies appends the bodies of the request and of the answer, as far as the level asks for them.
func (r *record) bodies(b []byte, stage uint32) []byte {
	level := r.audit.GetLevel()
	if level < logpb.AuditLevel_AUDIT_LEVEL_REQUEST || r.counted != nil {
		return b
	}
	if body := r.e.Content(logpb.Role_ROLE_REQUEST); len(body) > 0 {
		b = append(append(b, `,"requestObject":`...), r.withoutSecrets(body, r.secret(logpb.Role_ROLE_REQUEST))...)
	}
	if level < logpb.AuditLevel_AUDIT_LEVEL_REQUEST_RESPONSE || stage == responseStarted && !r.failed() {
		return b
	}
	switch response, object := r.e.Content(logpb.Role_ROLE_RESPONSE), r.e.Content(logpb.Role_ROLE_OBJECT); {
	case len(response) > 0:
		b = append(append(b, `,"responseObject":`...), r.withoutSecrets(response, r.secret(logpb.Role_ROLE_RESPONSE))...)
	case r.answersStatus(), r.failed() && stage != panicked:
		b = r.status(append(b, `,"responseObject":`...), true)
	case object != nil:
		b = append(b, `,"responseObject":`...)
		if fields := r.secret(logpb.Role_ROLE_OBJECT); len(fields) > 0 {
			object = r.key.Body(object, fields)
		}
		if r.audit.GetOmitManagedFields() {
			object = withoutManagedFields(object)
		}
		if scale := r.scale(object); scale != nil {
			return append(b, scale...)
		}
		b = r.withRevision(b, object)
	}
	return b
}

// scale returns the Scale of an object, if the answer was one; else nil.
func (r *record) scale(object []byte) []byte {
	paths := r.audit.GetScale()
	if paths == nil {
		return nil
	}
	var content map[string]any
	var of struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if utiljson.Unmarshal(object, &content) != nil || json.Unmarshal(object, &of) != nil {
		return nil
	}
	of.Metadata.ResourceVersion = strconv.FormatUint(r.revision, 10)
	s := schemas.Scale{SpecReplicasPath: paths.GetSpecReplicas(), StatusReplicasPath: paths.GetStatusReplicas(), LabelSelectorPath: paths.GetLabelSelector()}
	scale, _, err := s.Scaled(&of.Metadata, content)
	if err != nil {
		return nil // a field is shown as a hash
	}
	text, err := json.Marshal(scale)
	if err != nil {
		return nil
	}
	return text
}

// secret returns the secret fields of a payload. If it is sensitive and nobody knows which of its fields are secret, the
// whole of it is.
func (r *record) secret(role logpb.Role) hashing.Fields {
	fields := hashing.FieldsOf(r.object.GetGroup(), r.object.GetResource(), hashing.Decode(r.audit.GetSecretFields()))
	for _, p := range r.e.Meta.GetPayloads() {
		if p.GetRole() == role && p.GetClass().GetSensitive() && len(fields) == 0 && !r.isDecision() { // a decision has hashes already
			return hashing.Fields{{}}
		}
	}
	return fields
}

// withoutSecrets returns a body as it is shown: as a line of JSON, without secrets.
func (r *record) withoutSecrets(body []byte, secret hashing.Fields) []byte {
	body = r.key.Body(body, secret)
	if r.audit.GetOmitManagedFields() {
		body = withoutManagedFields(body)
	}
	return body
}

// withRevision appends an object with its resourceVersion, which the log does not repeat.
func (r *record) withRevision(b, object []byte) []byte {
	metadata := gjson.GetBytes(object, "metadata")
	if !metadata.IsObject() {
		return append(b, object...)
	}
	at := metadata.Index + 1
	b = append(b, object[:at]...)
	b = append(b, `"resourceVersion":"`...)
	b = append(strconv.AppendUint(b, r.revision, 10), '"')
	if object[at] != '}' {
		b = append(b, ',')
	}
	return append(b, object[at:]...)
}

// withoutManagedFields returns an object, the items of a list, or the objects of a table without managedFields.
func withoutManagedFields(body []byte) []byte {
	if !bytes.Contains(body, []byte(`"managedFields"`)) {
		return body
	}
	parsed := gjson.ParseBytes(body)
	if fields := parsed.Get("metadata.managedFields"); fields.Index > 0 {
		return cutField(body, "managedFields", fields.Index, len(fields.Raw))
	}
	if !parsed.Get("items").IsArray() && !parsed.Get("rows").IsArray() {
		return body
	}
	var list map[string]any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&list) != nil {
		return body
	}
	items, _ := list["items"].([]any)
	for _, item := range items {
		dropManagedFields(item)
	}
	rows, _ := list["rows"].([]any)
	for _, row := range rows {
		if row, ok := row.(map[string]any); ok {
			dropManagedFields(row["object"])
		}
	}
	var without bytes.Buffer
	e := json.NewEncoder(&without)
	e.SetEscapeHTML(false)
	if e.Encode(list) != nil {
		return body
	}
	return bytes.TrimSpace(without.Bytes())
}

func dropManagedFields(object any) {
	if object, ok := object.(map[string]any); ok {
		if metadata, ok := object["metadata"].(map[string]any); ok {
			delete(metadata, "managedFields")
		}
	}
}

// cutField returns compact JSON without a field: that with a name whose value begins at an offset and has a length.
func cutField(body []byte, name string, at, length int) []byte {
	from, to := at-len(name)-len(`"":`), at+length
	switch {
	case body[to] == ',':
		to++
	case body[from-1] == ',':
		from--
	}
	return append(append(make([]byte, 0, len(body)), body[:from]...), body[to:]...)
}
