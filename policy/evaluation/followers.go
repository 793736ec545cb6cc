package evaluation

import (
	"regexp"
	"slices"
	"strings"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// One mistake can make CUE report several errors. An error that only follows from a reported cause
// is left out; the cause says how many there are.

// causes matches messages from which other errors inside of the same part follow.
var causes = regexp.MustCompile(`^(undefined field: |reference ".*" not found|cannot call non-function)`)

// withoutFollowers returns the diagnostics that do not follow from others.
func withoutFollowers(diags schemas.Diagnostics) schemas.Diagnostics {
	follow := map[int]int{} // their number, by the index of the cause
	var left schemas.Diagnostics
	index := map[int]int{} // maps an index in diags to one in left
	for i, d := range diags {
		if cause := causeOf(d, diags); cause >= 0 && cause != i {
			if !ofRegexp(d.Message) && d.Message != "@embed" && !ofAlternatives(d.Message) { // a repetition
				follow[cause]++
			}
			continue
		}
		index[i] = len(left)
		left = append(left, d)
	}
	for cause, n := range follow {
		if i, ok := index[cause]; ok {
			hints := []string{left[i].Hint, wording.Count(n, "more error") + " may follow from this"}
			if left[i].Hint == "" {
				hints = hints[1:]
			}
			left[i].Hint = strings.Join(hints, "; ")
		}
	}
	return left
}

// causeOf returns the index of the diagnostic from which d follows; -1 if there is none.
func causeOf(d schemas.Diagnostic, diags schemas.Diagnostics) int {
	return slices.IndexFunc(diags, func(cause schemas.Diagnostic) bool {
		switch {
		case ofRegexp(d.Message):
			return strings.HasPrefix(cause.Message, "RE2 has no ") || strings.HasPrefix(cause.Message, "the regular expression cannot be read")
		case strings.HasSuffix(d.Message, " is required"):
			return causes.MatchString(cause.Message) && cause.Path != "" && strings.HasPrefix(d.Path, cause.Path+".")
		case strings.HasPrefix(d.Message, "cannot call non-function"):
			return strings.HasPrefix(cause.Message, "reference ") && cause.Pos.File == d.Pos.File && cause.Pos.Line == d.Pos.Line
		case ofAlternatives(d.Message):
			return strings.HasPrefix(cause.Message, "reference ") && cause.Pos.File == d.Pos.File && cause.Pos.Line == d.Pos.Line
		case strings.HasSuffix(d.Path, ".storageVersion"):
			return strings.Contains(cause.Message, "cannot be a name here") && strings.HasPrefix(cause.Path, strings.TrimSuffix(d.Path, "storageVersion")+"versions.")
		case d.Message == "@embed":
			return cause.Hint == "embedded by "+d.Pos.String() || cause.Message != d.Message && cause.Pos == d.Pos
		}
		return false
	})
}

// ofAlternatives reports whether a message is about alternatives of which CUE knows no value, as one of them has an undefined name.
func ofAlternatives(message string) bool {
	return strings.HasPrefix(message, "an alternative of type ") && strings.Contains(message, "which CUE drops")
}
