package patch

// Merge applies a merge patch (RFC 7386) to a decoded object, which then shares values with
// the patch. It comes to what Apply comes to with the same as JSON.
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
		case ok: // null in a list is not looked for then
			object[name] = value
		default:
			withoutNull(value)
			object[name] = value
		}
	}
}

// withoutNull takes fields that are null out of a value.
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
