package evaluation

import (
	"regexp"
	"slices"
	"strings"

	"stele.dev/stele/policy/wording"
	"stele.dev/stele/schemas"
)

// One mistake can make CUE say several things. What only follows from a cause that is reported as well is left out, and
// counted in what is said of the cause.

// causes are messages of which others follow, for what is inside of the same part.
var causes = regexp.MustCompile(`^(undefined field: |reference ".*" not found|cannot call non-function)`)

// withoutFollowers leaves out the diagnostics that follow from others.
func withoutFollowers(diags schemas.Diagnostics) schemas.Diagnostics {
	follow := map[int]int{} // how many, by the index of the cause
	var left schemas.Diagnostics
	index := map[int]int{} // in left, by that in diags
	for i, d := range diags {
		if cause := causeOf(d, diags); cause >= 0 && cause != i {
			if !ofRegexp(d.Message) && d.Message != "@embed" { // the same once more
				follow[cause]++
			}
			continue
		}
		index[i] = len(left)
		left = append(left, d)
	}
	for cause, n := range follow {
		if i, ok := index[cause]; ok {
			hints := []string{left[i].Hint, wording.Plural(n, "more error") + " may follow from this"}
			if left[i].Hint == "" {
				hints = hints[1:]
			}
			left[i].Hint = strings.Join(hints, "; ")
		}
	}
	return left
}

// causeOf is the index of the diagnostic that another one follows from; -1 if there is none.
func causeOf(d schemas.Diagnostic, diags schemas.Diagnostics) int {
	return slices.IndexFunc(diags, func(cause schemas.Diagnostic) bool {
		switch {
		case ofRegexp(d.Message):
			return strings.HasPrefix(cause.Message, "RE2 has no ") || strings.HasPrefix(cause.Message, "the regular expression cannot be read")
		case strings.HasSuffix(d.Message, " is required"):
			return causes.MatchString(cause.Message) && cause.Path != "" && strings.HasPrefix(d.Path, cause.Path+".")
		case strings.HasPrefix(d.Message, "cannot call non-function"):
			return strings.HasPrefix(cause.Message, "reference ") && cause.Pos.File == d.Pos.File && cause.Pos.Line == d.Pos.Line
		case strings.HasSuffix(d.Path, ".storageVersion"):
			return strings.Contains(cause.Message, "cannot be a name here") && strings.HasPrefix(cause.Path, strings.TrimSuffix(d.Path, "storageVersion")+"versions.")
		case d.Message == "@embed":
			return cause.Hint == "embedded by "+d.Pos.String() || cause.Message != d.Message && cause.Pos == d.Pos
		}
		return false
	})
}
