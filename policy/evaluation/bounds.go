package evaluation

import (
	"fmt"
	"regexp"
	"strings"

	"stele.dev/stele/schemas/wording"
)

// The bundle format limits names by regular expressions. Messages describe them in words.

// inWords describes the format's regular expressions.
var inWords = map[string]string{
	`^[a-z0-9]([-a-z0-9.:]*[a-z0-9])?$`:                   "a name of lower-case letters, digits, '-', '.' and ':'",
	`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`:            "a version such as v1, v1beta1 or v1alpha1",
	`^[0-9a-f]{64}$`:                                      "a SHA-256 in hexadecimal",
	`^[0-9]+(s|m|h|d)$`:                                   "a duration such as 30s, 5m, 12h or 7d",
	`^[0-9]+(h|d)$`:                                       "a duration such as 12h or 90d",
	`^[1-9][0-9]*(Ki|Mi|Gi|Ti)$`:                          "a size such as 512Mi or 10Gi",
	`^[0-9]+(ms|s)$`:                                      "a duration such as 500ms or 2s",
	`^[0-9]+(ms|s|m)$`:                                    "a duration such as 500ms, 2s or 1m",
	`^([a-z0-9][-a-z0-9.]*/)?[A-Za-z0-9][-A-Za-z0-9_.]*$`: "a name such as storage or requests.example.com/storage",
	`[./]`:                              "a name with a dot or a slash",
	`^[A-Za-z][-A-Za-z0-9.]*$`:          "a word of letters, digits, '-' and '.'",
	`^[A-Za-z0-9][-A-Za-z0-9_.]{0,62}$`: "a name of at most 63 letters, digits, '-', '_' and '.'",
	`^[^/]+/(webhooks|plugins)/(mutating|validating)/[^/]+$`: "the ID of a reviewer, such as team/webhooks/mutating/NAME",
	`^(/|$)`:                         "a path that begins with /",
	`^webhook:`:                      `"webhook:NAME"`,
	`^plugin:`:                       `"plugin:NAME"`,
	`^[A-Z][A-Za-z0-9]*$`:            "a word that begins with a capital, such as WidgetSet",
	`^[a-z][-a-z0-9]{0,61}[a-z0-9]$`: "a name of lower-case letters, digits and '-', such as big-databases",
	`^[a-z][A-Za-z0-9]*$`:            "a name of letters and digits, such as diskSize",
	`^-?[a-z][A-Za-z0-9]*$`:          "the name of a column, or -NAME for the reverse order",
	`^[a-z][a-z0-9]*$`:               "a word of lower-case letters and digits, such as widgets",
	`^\.`:                            "a path that begins with '.', such as .spec.size",
	`^\.(spec|status)\.`:             "a path such as .spec.color or .status.phase",
	`^/`:                             "a path that begins with '/'",
	`^[^/]+/[^/]+$`:                  "NAMESPACE/NAME",
	`^[a-z0-9]+/[a-z0-9]+$`:          "a platform such as linux/amd64",
	`^[A-Z][A-Z0-9_]*$`:              "a rule of plans, such as FIELD_REMOVED",
	`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`:   "a day such as 2026-12-31",
	`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[-+][0-9:]+)$`: "a time such as 2026-12-31T14:00:00Z",
	`^(\*|(\*\.)?[a-z0-9][-a-z0-9.]*)$`:                    `an API group, "*.example.com" for all below example.com, or "*" for all`,
	`^([A-Za-z_]|\[")`:                                     "a field such as spec.color or spec.ports[*].name",
	`^(abac|webhook(:.*)?|plugin:.*)$`:                     `"abac", "webhook", "webhook:NAME" or "plugin:NAME"`,
}

// patternBound matches a bound that is a regular expression, as CUE shows it.
var patternBound = regexp.MustCompile(`^=~(".*")$`)

// globBound matches a regular expression that the format makes of a namespace pattern.
var globBound = regexp.MustCompile(`^\^((?:[-a-z0-9]|\[-a-z0-9\*\]\*)*)\$$`)

// describeBound describes the values that a bound of the format allows; ok is false if the bound is not the
// format's.
func describeBound(bound string) (words string, ok bool) {
	if m := patternBound.FindStringSubmatch(bound); m != nil {
		text := wording.Unquoted(m[1])
		if words, ok := inWords[text]; ok {
			return words, true
		}
		if m := globBound.FindStringSubmatch(text); m != nil {
			return strings.ReplaceAll(m[1], "[-a-z0-9*]*", "*"), true
		}
		return bound, false
	}
	for _, b := range []struct{ sign, words string }{{">=", "at least %s"}, {"<=", "at most %s"}, {">", "more than %s"}, {"<", "less than %s"}} {
		if n, found := strings.CutPrefix(bound, b.sign); found {
			return fmt.Sprintf(b.words, n), true
		}
	}
	if bound == `!=""` {
		return "a text that is not empty", true
	}
	return bound, false
}

// isGlob reports whether a bound is a namespace pattern.
func isGlob(bound string) bool {
	m := patternBound.FindStringSubmatch(bound)
	return m != nil && inWords[wording.Unquoted(m[1])] == "" && globBound.MatchString(wording.Unquoted(m[1]))
}
