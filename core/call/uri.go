package call

import (
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/audit/hashing"
)

// secretNames are query parameters that may have credentials, and secretParts are parts of the names of such parameters. They
// are compared without regard to case and punctuation. No parameter of the API has such a name.
var (
	secretNames = []string{"assertion", "auth", "code", "jwt", "pwd", "sig"}
	secretParts = []string{"accesskey", "apikey", "authorization", "bearer", "credential", "passw", "privatekey", "secret", "sessionid", "signature", "token"}
)

// hiddenValue stands in records for what may be a credential.
const hiddenValue = "hidden"

// RecordedURI returns the URI of the request as records show it: without values of query parameters that may be credentials,
// and without values that a field selector compares with secret fields. It is UTF-8.
func (c *Call) RecordedURI() string {
	u := c.HTTP.URL
	uri := c.Past.Prefix + u.RequestURI()
	if u.RawQuery == "" {
		return UTF8(uri)
	}
	parts := strings.Split(u.RawQuery, "&")
	hidden := false
	for i, part := range parts {
		name, value, _ := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(name)
		if err != nil || value == "" {
			continue
		}
		shown := value
		switch {
		case isSecret(plain):
			shown = hiddenValue
		case plain == "fieldSelector":
			shown = c.recordedSelector(value)
		}
		if shown != value {
			parts[i], hidden = name+"="+shown, true
		}
	}
	if !hidden {
		return UTF8(uri)
	}
	path, _, _ := strings.Cut(uri, "?")
	return UTF8(path + "?" + strings.Join(parts, "&"))
}

// WithoutMoment returns a recorded URI without the prefix /at/<moment>, if it has one.
func WithoutMoment(uri string) string {
	path, query, asks := strings.Cut(uri, "?")
	below, found := strings.CutPrefix(path, AtPrefix+"/")
	if !found {
		return uri
	}
	_, rest, _ := strings.Cut(below, "/")
	if asks {
		rest += "?" + query
	}
	return "/" + rest
}

// isSecret reports whether the value of a query parameter may be a credential.
func isSecret(name string) bool {
	switch name {
	case "fieldManager", "fieldSelector", "fieldValidation", "labelSelector", "limit", "resourceVersion", "timeout", "timeoutSeconds", "watch":
		return false // the common ones
	}
	var buffer [64]byte
	plain := buffer[:0]
	for i := range len(name) {
		switch b := name[i]; {
		case 'A' <= b && b <= 'Z':
			plain = append(plain, b+'a'-'A')
		case 'a' <= b && b <= 'z' || b >= 0x80 || '0' <= b && b <= '9':
			plain = append(plain, b)
		}
	}
	text := string(plain)
	return slices.Contains(secretNames, text) || slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(text, part) })
}

// recordedSelector returns an encoded field selector without the values that it compares with secret fields. One that cannot
// be parsed is left out if the kind has secret fields.
func (c *Call) recordedSelector(value string) string {
	secret := c.SecretFields()
	if len(secret) == 0 {
		return value
	}
	text, err := url.QueryUnescape(value)
	if err != nil {
		return hiddenValue
	}
	selector, err := fields.ParseSelector(text)
	if err != nil {
		return hiddenValue
	}
	shown, changed := []string(nil), false
	for _, x := range selector.Requirements() {
		if isSecretField(x.Field, secret) {
			x.Value, changed = hiddenValue, true
		}
		shown = append(shown, x.Field+string(x.Operator)+fields.EscapeValue(x.Value))
	}
	if !changed {
		return value
	}
	return url.QueryEscape(strings.Join(shown, ","))
}

// isSecretField reports whether the path of a field selector leads to a secret field or into one.
func isSecretField(field string, secret hashing.Fields) bool {
	names := strings.Split(strings.TrimPrefix(field, "."), ".")
	return slices.ContainsFunc(secret, func(path []string) bool {
		if len(path) > len(names) {
			return false
		}
		for i, name := range path {
			if name != hashing.Any && !strings.EqualFold(name, names[i]) {
				return false
			}
		}
		return true
	})
}

// SecretFields returns the fields of the objects that the request is about which hold secrets, also if it was refused before
// its kind was found.
func (c *Call) SecretFields() hashing.Fields {
	if c.Info == nil || !c.Info.IsResourceRequest {
		return nil
	}
	paths := sensitivePaths(c.Kind)
	if (c.Kind == nil || c.Past.Tip != nil) && c.Tip != nil && c.Tip.Policy != nil { // what is a secret today was one in the past
		paths = slices.Concat(paths, sensitivePaths(c.Tip.Policy.Version(c.GVR())))
	}
	return hashing.FieldsOf(c.Info.APIGroup, c.Info.Resource, paths)
}

func sensitivePaths(v *policy.Version) [][]string {
	if v == nil || v.Program == nil { // virtual kinds have no program
		return nil
	}
	paths := v.Program.SensitivePaths()
	if view := v.Kind.View; view != nil && view.Grouped && len(paths) > 0 {
		paths = append(paths, []string{"metadata", "name"}) // it is made of the columns
	}
	return paths
}
