package wording

import (
	"fmt"
	"regexp"
	"strings"
)

// The format of bundles bounds what people write by regular expressions. They are told in words.

// inWords are the words for the regular expressions of the format.
var inWords = map[string]string{
	`^[a-z0-9]([-a-z0-9.:]*[a-z0-9])?$`:        "a name of lower-case letters, digits, '-', '.' and ':'",
	`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`: "a version such as v1, v1beta1 or v1alpha1",
	`^[0-9a-f]{64}$`:                           "a SHA-256 in hexadecimal",
	`^[0-9]+(s|m|h|d)$`:                        "a duration such as 30s, 5m, 12h or 7d",
	`^[0-9]+(h|d)$`:                            "a duration such as 12h or 90d",
	`^[0-9]+(ms|s)$`:                           "a duration such as 500ms or 2s",
	`^[0-9]+(ms|s|m)$`:                         "a duration such as 500ms, 2s or 1m",
	`^webhook:`:                                `"webhook:NAME"`,
	`^plugin:`:                                 `"plugin:NAME"`,
	`^[A-Z][A-Za-z0-9]*$`:                      "a word that begins with a capital, such as WidgetSet",
	`^[a-z][a-z0-9]*$`:                         "a word of lower-case letters and digits, such as widgets",
	`^\.`:                                      "a path that begins with '.', such as .spec.size",
	`^-?\.`:                                    "a path such as .spec.size, or -.spec.size for the other order",
	`^\.(spec|status)\.`:                       "a path such as .spec.color or .status.phase",
	`^/`:                                       "a path that begins with '/'",
	`^[^/]+/[^/]+$`:                            "NAMESPACE/NAME",
	`^[a-z0-9]+/[a-z0-9]+$`:                    "a platform such as linux/amd64",
}

// pattern is a bound by a regular expression, as CUE shows it.
var patternBound = regexp.MustCompile(`^=~(".*")$`)

// glob is a regular expression that the format makes of a pattern of namespaces.
var globBound = regexp.MustCompile(`^\^((?:[-a-z0-9]|\[-a-z0-9\*\]\*)*)\$$`)

// boundInWords says what a bound of the format admits; ok is false if it is not one of the format's.
func Bound(bound string) (words string, ok bool) {
	if m := patternBound.FindStringSubmatch(bound); m != nil {
		text := Unquoted(m[1])
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

// isGlob reports whether a bound is a pattern of namespaces.
func IsGlob(bound string) bool {
	m := patternBound.FindStringSubmatch(bound)
	return m != nil && inWords[Unquoted(m[1])] == "" && globBound.MatchString(Unquoted(m[1]))
}
