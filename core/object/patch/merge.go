package patch

// Merge applies a merge patch (RFC 7386) to a decoded object. The object then shares values with the patch. The result
// is that of Apply with the same patch as JSON.
func Merge(object, patch map[string]any) {
	for name, value := range patch {
		if value == nil {
			delete(object, name)
			continue
		}
		old, ok := object[name].(map[string]any)
		fields, merges := value.(map[string]any)
		switch {
		case ok && merges:
			Merge(old, fields)
		case ok: // null inside a list stays
			object[name] = value
		default:
			withoutNull(value)
			object[name] = value
		}
	}
}

// withoutNull removes fields that are null from a value.
func withoutNull(value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			if field == nil {
				delete(v, name)
			} else {
				withoutNull(field)
			}
		}
	case []any:
		for _, item := range v {
			withoutNull(item)
		}
	}
}
