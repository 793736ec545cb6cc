package plan

import (
	"encoding/json"
	"slices"
)

// Plain returns a part of a form as JSON decodes it, without its positions in the bundle, so that parts which say the same are
// equal. Fields named in without are left out too, such as "checked", the compiled form of expressions.
func Plain(part any, without ...string) any {
	text, err := json.Marshal(part)
	var value any
	if err == nil {
		err = json.Unmarshal(text, &value)
	}
	if err != nil {
		panic(err) // forms are plain data
	}
	strip(value, append(without, "source"))
	return value
}

// strip removes fields from a value, at any depth.
func strip(value any, fields []string) {
	switch x := value.(type) {
	case map[string]any:
		for name, value := range x {
			switch {
			case slices.Contains(fields, name):
				delete(x, name)
			case name != "params" && name != "matchLabels": // their keys are the user's
				strip(value, fields)
			}
		}
	case []any:
		for _, value := range x {
			strip(value, fields)
		}
	}
}
