package builtin

import (
	"encoding/base64"
	"maps"
	"slices"
)

// Prepare does to an object of the built-in kind what Kubernetes does when it
// reads and stores one, as far as that is more than pruning and defaulting. It
// changes obj in place. old is nil when the object is created.
//
// Beside the fields of the kind it sets one label: kubernetes.io/metadata.name
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
}

// withoutNulls removes the nulls in and below m[key]. Typed clients write a null
// for a time that is not set, and Kubernetes reads a null as what is not there;
// among the entries of a map, as an empty one.
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

// entries returns m[key] if it is a map, and otherwise an empty one.
func entries(m map[string]any, key string) map[string]any {
	e, _ := m[key].(map[string]any)
	return e
}

// section returns m[key] as a map, which it makes if there is none. It returns
// nil if something else is there, for the schema to refuse.
func section(m map[string]any, key string) map[string]any {
	if _, ok := m[key]; !ok {
		m[key] = make(map[string]any)
	}
	s, _ := m[key].(map[string]any)
	return s
}

const namespaceNameLabel = "kubernetes.io/metadata.name"

// prepareNamespace makes a new namespace active and keeps its content from being
// forgotten. What is in it is found by the label with its name.
func prepareNamespace(obj, old map[string]any) {
	metadata := entries(obj, "metadata")
	if name, _ := metadata["name"].(string); name != "" {
		if labels := section(metadata, "labels"); labels != nil {
			labels[namespaceNameLabel] = name
		}
	}
	if old != nil {
		// Only the finalize subresource of Kubernetes changes them.
		spec, had := entries(obj, "spec"), entries(old, "spec")["finalizers"]
		switch {
		case spec == nil:
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

// prepareSecret folds stringData into data.
func prepareSecret(obj, _ map[string]any) {
	canonicalBytes(entries(obj, "data"))
	texts, ok := obj["stringData"].(map[string]any)
	if !ok {
		return
	}
	for _, text := range texts {
		if _, ok := text.(string); !ok {
			return // for the schema to refuse
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

// canonicalBytes writes base64 in its one canonical form. Kubernetes stores the
// bytes, so it forgets line breaks and the like.
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

// prepareServiceAccount keeps only the names of secrets.
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
