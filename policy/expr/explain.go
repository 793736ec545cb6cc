package expr

import (
	"fmt"
	"regexp"
	"strings"

	"stele.dev/stele/schemas/wording"
)

var noOverload = regexp.MustCompile(`^found no matching overload for '(\w*?)_?(\S+?)_?' applied to '\((.*)\)'$`)

// Explain explains an error in an expression in terms that users know, and says what to write.
func (f *Fault) Explain(text string) (message, hint string) {
	message = f.Message
	if f.Hint != "" {
		if near := wording.Nearest(f.Name, f.Known); near != "" {
			return message, fmt.Sprintf("did you mean %q? Or else %s", near, f.Hint)
		}
		return message, f.Hint
	}
	if message, hint, known := f.unlikeCEL(text); known {
		return message, hint
	}
	if hint = f.habit(text); hint != "" {
		return message, hint
	}
	hint = wording.DidYouMean(f.Name, f.Known, "")
	switch {
	case strings.Contains(message, "token recognition error at: '= '"), strings.Contains(message, "token recognition error at: '='"):
		return "= is no operator", "CEL compares with =="
	case strings.Contains(message, "token recognition error at: '& '"), strings.Contains(message, "token recognition error at: '| '"):
		return "a single & or | is no operator", "CEL has && and ||"
	case strings.Contains(message, "token recognition error at: ''"), strings.Contains(message, `token recognition error at: '"`):
		return "a text does not end", "close it with the quote that it begins with"
	case strings.HasPrefix(message, "Syntax error: ") && words(text, "and", "or", "not"):
		return message, "CEL has &&, || and !, and no and, or and not"
	case strings.Contains(message, "expecting <EOF>"), strings.Contains(message, "'<EOF>'"):
		return strings.ReplaceAll(message, "<EOF>", "the end"), "see that brackets are closed, and that operators stand between values"
	case strings.HasPrefix(message, "it may cost "):
		return message, "bound what it goes over: list.MaxItems, strings.MaxRunes, struct.MaxFields"
	}
	if m := noOverload.FindStringSubmatch(message); m != nil && m[1] == "" && !strings.ContainsAny(m[2], "abcdefghijklmnopqrstuvwxyz") {
		return m[2] + " cannot be applied to " + strings.ReplaceAll(m[3], ", ", " and "), "convert one of them: int(…), double(…) or string(…)"
	}
	return message, hint
}

// words reports whether a text contains one of some words as a whole word.
func words(text string, list ...string) bool {
	for _, w := range list {
		if Names(text, w) {
			return true
		}
	}
	return false
}
