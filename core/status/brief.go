package status

import (
	"strings"
	"unicode"
)

// maxBrief limits the length of texts from outside that go to clients and into the log.
const maxBrief = 1024

// Brief returns text from outside, such as the reason of a webhook or a plugin, as one short line that is safe to print on a
// terminal.
func Brief(text string) string {
	more := ""
	if len(text) > maxBrief {
		text, more = strings.ToValidUTF8(text[:maxBrief], ""), "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "\uFFFD")) + more
}
