package wording

import (
	"strconv"
	"strings"
)

// PlaceIn returns the line of the rule that a message names at its end, such as "widgets.cue:14", or "".
func PlaceIn(message string) string {
	text, ended := strings.CutSuffix(message, ")")
	_, place, named := lastCut(text, " (")
	_, line, hasLine := lastCut(place, ":")
	if _, err := strconv.ParseUint(line, 10, 32); !ended || !named || !hasLine || err != nil {
		return ""
	}
	return place
}

func lastCut(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}
