package call

import (
	"strings"

	"stele.dev/stele/policy"
)

// maxWarnings and maxWarning bound the number of warnings in an answer, and the bytes of each.
const (
	maxWarnings = 64
	maxWarning  = 256
)

// Warn adds a warning to the answer.
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

// WarnDeprecated drops the warnings of an earlier round, and warns if the version is deprecated.
func (c *Call) WarnDeprecated(kind *policy.Version) {
	c.warnings = nil
	if text := kind.Deprecated; text != "" {
		c.Warn(text)
	}
}

// ResetWarnings drops the warnings of an earlier round.
func (c *Call) ResetWarnings() { c.warnings = nil }

// Warnings returns the warnings that go into the answer.
func (c *Call) Warnings() []string { return c.warnings }
