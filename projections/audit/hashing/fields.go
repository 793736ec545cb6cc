package hashing

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
	"stele.dev/stele/schemas/jsonvalue"
)

// Any stands in a path for every item of a list or every entry of a map, as in package schemas.
const Any = "*"

// Fields are the paths to secret fields of an object. A path consists of field names and [Any].
type Fields [][]string

// Secrets are the secret fields of Secrets: each key of their data.
var Secrets = Fields{{"data", Any}, {"stringData", Any}}

// FieldsOf returns the secret fields of a kind: those of Kubernetes' own kinds, those that quote other objects, whatever these are, or
// those that its schema marks.
func FieldsOf(group, resource string, marked [][]string) Fields {
	switch {
	case group == "" && resource == "secrets":
		return Secrets
	case group == "" && resource == "serviceaccounts": // TokenRequests
		return tokenRequests
	case group == "authentication.k8s.io" && resource == "tokenreviews":
		return tokenReviews
	case group == "log.stele.dev" || group == "policy.stele.dev":
		return quotes[resource]
	}
	return marked
}

var (
	tokenRequests = Fields{{"status", "token"}}
	tokenReviews  = Fields{{"spec", "token"}}
	// quotes are the fields of the server's own resources that have parts of other objects.
	quotes = map[string]Fields{
		"changes":      {{"difference", Any, "from"}, {"difference", Any, "to"}},
		"decisions":    {{"requestBody"}, {"responseBody"}},
		"blames":       {{"status", "fields", Any, "value"}},
		"explanations": {{"spec", "object"}},
	}
)

// Encode returns the fields as text, a line for each, sorted: the names are separated by slashes and escaped like those
// of a JSON pointer (RFC 6901).
func (f Fields) Encode() []string {
	var lines []string
	for _, path := range f {
		names := make([]string, len(path))
		for i, name := range path {
			names[i] = jsonvalue.Escape(name)
		}
		lines = append(lines, strings.Join(names, "/"))
	}
	slices.Sort(lines)
	return lines
}

// Decode returns the fields of lines that [Fields.Encode] made.
func Decode(lines []string) Fields {
	var f Fields
	for _, line := range lines {
		if line == "" { // the whole object
			f = append(f, []string{})
			continue
		}
		path := strings.Split(line, "/")
		for i, name := range path {
			path[i] = jsonvalue.Unescape(name)
		}
		f = append(f, path)
	}
	return f
}

// lastApplied is the annotation in which kubectl keeps the object as it was applied.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Body returns the body of a request or an answer as one line of JSON, with hashes in place of secret values: of an
// object, a list of objects, a table, or a patch. Strategies of patches are told by their content. YAML is converted
// to JSON. A body that is neither is a JSON string: of the text, or of its hash if there are secret fields.
//
// The field names of secrets are compared without regard to case, because what a client spells wrong is a secret too.
// Copies of values in the annotation last-applied-configuration and in managedFields are hashed as well.
func (k *Key) Body(body []byte, secret Fields) []byte {
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		return []byte("null")
	}
	if len(secret) == 0 {
		var line bytes.Buffer
		if json.Compact(&line, body) == nil {
			return line.Bytes()
		}
	}
	value, err := decode(body)
	if err != nil {
		converted, err2 := yaml.YAMLToJSON(body)
		if err2 == nil {
			value, err = decode(converted)
		}
	}
	switch text, isText := value.(string); {
	case err == nil && !isText:
		return encode(k.document(value, secret))
	case len(secret) > 0:
		return encode(k.Hash(body))
	case err == nil:
		return encode(text)
	}
	return encode(strings.ToValidUTF8(string(body), "\ufffd"))
}

func decode(body []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, &json.SyntaxError{Offset: d.InputOffset()}
	}
	return value, nil
}

func encode(value any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		panic(err) // it was decoded from JSON
	}
	return bytes.TrimSpace(b.Bytes())
}

// document hashes what is secret in a decoded body.
func (k *Key) document(value any, secret Fields) any {
	if len(secret) == 0 {
		return value
	}
	switch v := value.(type) {
	case []any: // a JSON patch
		for _, op := range v {
			if op, ok := op.(map[string]any); ok {
				k.operation(op, secret)
			} else {
				return k.hashed(value)
			}
		}
		return v
	case map[string]any:
		k.items(v, secret)
		return k.object(v, secret)
	}
	return k.hashed(value)
}

// items hashes what is secret in the items of a list, or in the objects of a table.
func (k *Key) items(v map[string]any, secret Fields) {
	kind, _ := v["kind"].(string)
	if items, ok := v["items"].([]any); ok && strings.HasSuffix(kind, "List") {
		for i, item := range items {
			items[i] = k.object(item, secret)
		}
	}
	if rows, ok := v["rows"].([]any); ok && kind == "Table" {
		for _, row := range rows {
			if row, ok := row.(map[string]any); ok {
				k.cells(v["columnDefinitions"], row["cells"], secret)
				if row["object"] != nil {
					row["object"] = k.object(row["object"], secret)
				}
			}
		}
	}
}

// cells hashes the cells of a table that show secret columns of a view, or the name of a row that is made of them. Other kinds have no
// columns of secrets.
func (k *Key) cells(definitions, cells any, secret Fields) {
	columns, _ := definitions.([]any)
	values, _ := cells.([]any)
	for i, column := range columns[:min(len(columns), len(values))] {
		column, _ := column.(map[string]any)
		name, _ := column["name"].(string)
		if slices.ContainsFunc(secret, func(path []string) bool {
			return len(path) == 2 && (path[0] == "columns" || path[0] == "metadata") && strings.EqualFold(path[1], name)
		}) {
			values[i] = k.hashed(values[i])
		}
	}
}

// operation hashes what is secret in the value of an operation of a JSON patch (RFC 6902): it wraps the value in the
// fields of the path, and unwraps it again.
func (k *Key) operation(op map[string]any, secret Fields) {
	value, has := op["value"]
	if !has {
		return
	}
	pointer, _ := op["path"].(string)
	names := Decode([]string{strings.TrimPrefix(pointer, "/")})[0]
	wrapped := value
	for _, name := range slices.Backward(names) {
		wrapped = map[string]any{name: wrapped}
	}
	wrapped = k.object(wrapped, secret)
	for _, name := range names {
		fields, ok := wrapped.(map[string]any)
		if !ok { // a field above the value is secret
			op["value"] = k.hashed(value)
			return
		}
		wrapped = fields[name]
	}
	op["value"] = wrapped
}

// object hashes the secret fields of an object, and the copies of their values in its metadata.
func (k *Key) object(value any, secret Fields) any {
	v, ok := value.(map[string]any)
	if !ok {
		return k.hashed(value)
	}
	if metadata, ok := v["metadata"].(map[string]any); ok {
		k.metadata(metadata, secret)
	}
	value = v
	for _, path := range secret {
		value = k.field(value, path, isSecretData(path))
	}
	return value
}

// isSecretData reports whether a path is that of a Secret's data, which is in base64. Its hashes are those of the
// decoded values, so that they are equal to those of stringData.
func isSecretData(path []string) bool { return slices.Equal(path, Secrets[0]) }

func (k *Key) metadata(metadata map[string]any, secret Fields) {
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		if text, ok := annotations[lastApplied].(string); ok {
			annotations[lastApplied] = k.applied(text, secret)
		}
	}
	entries, _ := metadata["managedFields"].([]any)
	for _, entry := range entries {
		if entry, ok := entry.(map[string]any); ok {
			entry["fieldsV1"] = k.managed(entry["fieldsV1"])
		}
	}
}

// applied hashes what is secret in the value of the annotation last-applied-configuration.
func (k *Key) applied(text string, secret Fields) string {
	value, err := decode([]byte(text))
	if _, ok := value.(map[string]any); err != nil || !ok {
		return k.text(text)
	}
	return string(encode(k.object(value, secret)))
}

// managed hashes the values among the names of managed fields: "v:" is followed by the item of a set, "k:" by the keys
// of an item.
func (k *Key) managed(value any) any {
	fields, ok := value.(map[string]any)
	if !ok {
		return value
	}
	hashed := make(map[string]any, len(fields))
	for name, below := range fields {
		if kind, rest, ok := strings.Cut(name, ":"); ok && (kind == "v" || kind == "k") {
			name = kind + ":" + k.text(rest)
		}
		hashed[name] = k.managed(below)
	}
	return hashed
}

// field hashes the values at a path.
func (k *Key) field(value any, path []string, inBase64 bool) any {
	if len(path) == 0 {
		if text, ok := value.(string); ok && inBase64 {
			if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
				return k.Hash(plain)
			}
		}
		return k.hashed(value)
	}
	switch v := value.(type) {
	case map[string]any:
		for name, below := range v {
			switch {
			case isDirective(name, below): // it has no value of a field
			case path[0] == Any || strings.EqualFold(name, path[0]) || isDirectiveOf(name, path[0]):
				v[name] = k.field(below, path[1:], inBase64)
			}
		}
	case []any:
		for i, item := range v {
			if path[0] == Any {
				v[i] = k.field(item, path[1:], inBase64)
			} else {
				v[i] = k.hashed(item)
			}
		}
	case nil:
	default: // it does not have the form of its kind, so that this may be the secret
		return k.hashed(value)
	}
	return value
}

// isDirective reports whether a field of a strategic merge patch says what to do with the fields beside it.
func isDirective(name string, value any) bool {
	return name == "$patch" && (value == "replace" || value == "merge" || value == "delete")
}

// isDirectiveOf reports whether a name is that of a directive of a strategic merge patch that lists items of a field.
func isDirectiveOf(name, field string) bool {
	directive, of, ok := strings.Cut(name, "/")
	return ok && strings.EqualFold(of, field) && (directive == "$deleteFromPrimitiveList" || directive == "$setElementOrder")
}

// hashed returns the hash of a value: of the text of a string, of the JSON of another value. null has none, and what is
// hashed already stays, so that hashing twice does no harm.
func (k *Key) hashed(value any) any {
	switch v := value.(type) {
	case nil:
		return nil
	case string:
		return k.text(v)
	}
	return k.Hash(encode(value))
}

func (k *Key) text(text string) string {
	if IsHash(text) {
		return text
	}
	return k.Hash([]byte(text))
}

// IsHash reports whether a text has the form of a hash.
func IsHash(text string) bool {
	digits, ok := strings.CutPrefix(text, Prefix)
	return ok && len(digits) == 32 && strings.Trim(digits, "0123456789abcdef") == ""
}
