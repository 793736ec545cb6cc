package call

import (
	"strings"

	"stele.dev/stele/policy"
)

// maxWarnings and maxWarning bound what goes into headers.
const (
	maxWarnings = 64
	maxWarning  = 256
)

func (c *Call) Warn(text string) {
	if len(c.warnings) == maxWarnings {
		return
	}
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxWarning {
		text = strings.ToValidUTF8(text[:maxWarning], "") + "…"
	}
	c.warnings = append(c.warnings, text)
}

// warnDeprecated warns of a version that is deprecated, whatever is done with it, and forgets
// the warnings of the round before.
func (c *Call) WarnDeprecated(kind *policy.Version) {
	c.warnings = nil
	if text := kind.Deprecated; text != "" {
		c.Warn(text)
	}
}

// ResetWarnings forgets the warnings of an earlier round.
func (c *Call) ResetWarnings() { c.warnings = nil }

// Warnings returns the warnings that go into the answer.
func (c *Call) Warnings() []string { return c.warnings }
