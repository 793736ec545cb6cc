package call

import (
	"slices"
	"strings"
	"unicode/utf8"

	"stele.dev/stele/policy"
)

// maxWarnings bounds the warnings of an answer together, and maxWarning each of them if together they are longer, in
// characters, as in kube-apiserver.
const (
	maxWarnings = 4096
	maxWarning  = 256
)

// warnings are those of an answer, in their order.
type warnings struct {
	texts []string
	runes int  // of all texts
	cut   bool // they were too long together, and each is cut
}

// add adds a warning, unless it is there already or there is no room.
func (w *warnings) add(text string) {
	if w.cut {
		if w.runes >= maxWarnings {
			return
		}
		text = shortened(text)
	}
	if text == "" || slices.Contains(w.texts, text) {
		return
	}
	w.texts = append(w.texts, text)
	w.runes += utf8.RuneCountInString(text)
	if !w.cut && w.runes > maxWarnings {
		w.cut, w.runes = true, 0
		for i, text := range w.texts {
			w.texts[i] = shortened(text)
			w.runes += utf8.RuneCountInString(w.texts[i])
		}
	}
}

// shortened returns the first characters of a text.
func shortened(text string) string {
	n := 0
	for i := range text {
		if n == maxWarning {
			return text[:i]
		}
		n++
	}
	return text
}

// Warn adds a warning to the answer. One that the answer has already is not added again.
func (c *Call) Warn(text string) {
	c.warnings.add(strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "?")))
}

// WarnDeprecated drops the warnings of an earlier round, and warns if the version is deprecated.
func (c *Call) WarnDeprecated(kind *policy.Version) {
	c.ResetWarnings()
	if text := kind.Deprecated; text != "" {
		c.Warn(text)
	}
}

// ResetWarnings drops the warnings of an earlier round.
func (c *Call) ResetWarnings() { c.warnings = warnings{} }

// Warnings returns the warnings that go into the answer.
func (c *Call) Warnings() []string { return c.warnings.texts }
