package show

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/core/object/difference"
)

// firstField returns the most important field that a change changed and the number of the other ones: "spec.tier
// small → large (+1)". A field that the user asked for comes first.
func firstField(all []difference.Entry, asked string) string {
	if len(all) == 0 {
		return ""
	}
	d := slices.MinFunc(all, func(a, b difference.Entry) int {
		return cmp.Or(-compareBool(isOf(a.Path, asked), isOf(b.Path, asked)), importance(a.Path)-importance(b.Path),
			-compareBool(a.Op == "replace", b.Op == "replace"), strings.Compare(a.Path, b.Path)) // defaults are added, sent fields replaced
	})
	text := d.Path
	switch d.Op {
	case "add":
		text += " + " + inLine(d.To)
	case "remove":
		text += " - " + inLine(d.From)
	default:
		text += " " + inLine(d.From) + " → " + inLine(d.To)
	}
	if len(all) > 1 {
		text += fmt.Sprintf(" (+%d)", len(all)-1)
	}
	return text
}

// isOf reports whether a path is the field, a part of it, or contains it.
func isOf(path, field string) bool {
	return field != "" && (strings.HasPrefix(path, field) || strings.HasPrefix(field, path))
}

// compareBool sorts false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// importance ranks fields, 0 first. Fields of metadata come last, after those of status.
func importance(path string) int {
	switch first, _, _ := strings.Cut(path, "."); first {
	case "metadata":
		return 2
	case "status":
		return 1
	}
	return 0
}

// inLine returns a value shortened to a few characters.
func inLine(value any) string {
	const most = 24
	text, short := shortValue(value)
	if !short {
		if encoded, err := json.Marshal(value); err == nil {
			text = string(encoded)
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most-1]) + "…"
	}
	return text
}
