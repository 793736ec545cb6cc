package client

import (
	"encoding/json"

	"stele.dev/stele/core/difference"
)

// FieldDifference is what became of a field.
type FieldDifference struct {
	Path string          `json:"path"`
	Op   string          `json:"op"` // add, remove or replace
	From json.RawMessage `json:"from,omitempty"`
	To   json.RawMessage `json:"to,omitempty"`
}

// FieldDifferences are those of a comparison, as they are shown.
func FieldDifferences(entries []difference.Entry) []FieldDifference {
	all := make([]FieldDifference, len(entries))
	for i, e := range entries {
		all[i] = FieldDifference{Path: e.Path, Op: e.Op, From: raw(e.From), To: raw(e.To)}
	}
	return all
}

// raw is a decoded value as JSON; nil for none.
func raw(value any) json.RawMessage {
	if value == nil {
		return nil
	}
	text, err := json.Marshal(value)
	if err != nil { // decoded JSON always encodes
		return nil
	}
	return text
}
