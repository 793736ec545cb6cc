package builtin

import (
	"encoding/base64"
	"maps"
	"slices"
)

// Prepare changes obj, an object of a built-in kind, as Kubernetes does before it stores one, apart from
// pruning and defaulting. old is nil on create. Prepare also sets the label kubernetes.io/metadata.name
// of a namespace.
func Prepare(kind string, obj, old map[string]any) {
	for key := range obj {
		switch key {
		case "metadata":
		case "data", "binaryData", "stringData":
			for k, v := range entries(obj, key) {
				if v == nil {
					entries(obj, key)[k] = ""
				}
			}
			fallthrough
		default:
			withoutNulls(obj, key)
		}
	}
	if prepare := preparations[kind]; prepare != nil {
		prepare(obj, old)
	}
}

var preparations = map[string]func(obj, old map[string]any){
	"Namespace":      prepareNamespace,
	"ConfigMap":      prepareConfigMap,
	"Secret":         prepareSecret,
	"ServiceAccount": prepareServiceAccount,
	"ResourceQuota":  prepareResourceQuota,
}

// withoutNulls removes the nulls in m[key] and its parts. Typed clients write a null for an unset time,
// and Kubernetes reads a null as an absent field. In the entries of a map, a null becomes the empty
// value.
func withoutNulls(m map[string]any, key string) {
	switch x := m[key].(type) {
	case nil:
		delete(m, key)
	case map[string]any:
		for k := range x {
			withoutNulls(x, k)
		}
	case []any:
		for _, item := range x {
			if item, ok := item.(map[string]any); ok {
				for k := range item {
					withoutNulls(item, k)
				}
			}
		}
	}
}

// entries returns m[key] if it is a map, or else an empty map.
func entries(m map[string]any, key string) map[string]any {
	e, _ := m[key].(map[string]any)
	return e
}

// section returns m[key] as a map and creates it if it is missing. It returns nil if m[key] is not a
// map; the schema then rejects it.
func section(m map[string]any, key string) map[string]any {
	if _, ok := m[key]; !ok {
		m[key] = make(map[string]any)
	}
	s, _ := m[key].(map[string]any)
	return s
}

const namespaceNameLabel = "kubernetes.io/metadata.name"

// prepareNamespace sets the phase of a new namespace to Active and adds its finalizer and its name
// label.
func prepareNamespace(obj, old map[string]any) {
	metadata := entries(obj, "metadata")
	if name, _ := metadata["name"].(string); name != "" {
		if labels := section(metadata, "labels"); labels != nil {
			labels[namespaceNameLabel] = name
		}
	}
	if old != nil {
		// Only the finalize subresource of Kubernetes changes finalizers.
		spec, had := entries(obj, "spec"), entries(old, "spec")["finalizers"]
		if had != nil {
			spec = section(obj, "spec")
		}
		switch {
		case spec == nil: // the validation refuses it
		case had != nil:
			spec["finalizers"] = had
		default:
			delete(spec, "finalizers")
		}
		return
	}
	obj["status"] = map[string]any{"phase": "Active"}
	spec := section(obj, "spec")
	if spec == nil {
		return
	}
	finalizers, ok := spec["finalizers"].([]any)
	if _, other := spec["finalizers"]; other && !ok {
		return
	}
	if !slices.Contains(finalizers, any("kubernetes")) {
		spec["finalizers"] = append(finalizers, "kubernetes")
	}
}

func prepareConfigMap(obj, _ map[string]any) {
	canonicalBytes(entries(obj, "binaryData"))
}

// prepareSecret moves stringData into data.
func prepareSecret(obj, _ map[string]any) {
	canonicalBytes(entries(obj, "data"))
	texts, ok := obj["stringData"].(map[string]any)
	if !ok {
		return
	}
	for _, text := range texts {
		if _, ok := text.(string); !ok {
			return // the schema rejects it
		}
	}
	if len(texts) > 0 {
		data := section(obj, "data")
		if data == nil {
			return
		}
		for key, text := range texts {
			data[key] = base64.StdEncoding.EncodeToString([]byte(text.(string)))
		}
	}
	delete(obj, "stringData")
}

// canonicalBytes rewrites base64 in its canonical form. Kubernetes stores decoded bytes, so line breaks
// are not kept.
func canonicalBytes(data map[string]any) {
	for _, key := range slices.Collect(maps.Keys(data)) {
		text, _ := data[key].(string)
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			continue
		}
		if canonical := base64.StdEncoding.EncodeToString(raw); canonical != text {
			data[key] = canonical
		}
	}
}

// prepareServiceAccount removes all fields but the name from references to secrets.
func prepareServiceAccount(obj, _ map[string]any) {
	secrets, _ := obj["secrets"].([]any)
	for i, s := range secrets {
		secret, ok := s.(map[string]any)
		if !ok {
			continue
		}
		if name, ok := secret["name"]; ok {
			secrets[i] = map[string]any{"name": name}
		} else {
			secrets[i] = map[string]any{}
		}
	}
}
