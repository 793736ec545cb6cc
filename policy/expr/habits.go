package expr

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"stele.dev/stele/schemas/wording"
)

// Authors write what other languages have. These functions say what CEL has instead.

// habits are names of other languages, and what to write in CEL.
var habits = map[string]string{
	"len": "write size(x)", "length": "write size(x)", "count": "write size(x)", "strlen": "write size(x)",
	"empty": "write size(x) == 0", "isEmpty": "write size(x) == 0", "is_empty": "write size(x) == 0",
	"lower": "write x.lowerAscii()", "toLower": "write x.lowerAscii()", "toLowerCase": "write x.lowerAscii()", "to_lower": "write x.lowerAscii()",
	"upper": "write x.upperAscii()", "toUpper": "write x.upperAscii()", "toUpperCase": "write x.upperAscii()", "to_upper": "write x.upperAscii()",
	"strip": "write x.trim()", "includes": "write 'a' in x for a list, and x.contains('a') for a text", "hasPrefix": "write x.startsWith('a')", "hasSuffix": "write x.endsWith('a')",
	"any": "write list.exists(x, …)", "some": "write list.exists(x, …)", "every": "write list.all(x, …)", "select": "write list.filter(x, …)",
	"match": "write x.matches('^…$')", "regex": "write x.matches('^…$')", "regexMatch": "write x.matches('^…$')", "re": "write x.matches('^…$')", "test": "write x.matches('^…$')",
	"str": "write string(x)", "toString": "write string(x)", "float": "write double(x)", "number": "write double(x)", "parseInt": "write int(x)", "integer": "write int(x)", "boolean": "write bool(x)",
	"substr": "write x.substring(from, to)", "concat": "write a + b", "defined": "write has(a.b)", "exists": "write has(a.b) for a field, and list.exists(x, …) for a list",
	"nil": "write null, or !has(a.b) for a field that is missing", "None": "write null, or !has(a.b) for a field that is missing", "undefined": "write !has(a.b) for a field that is missing",
	"NULL": "write null", "Null": "write null", "True": "write true", "TRUE": "write true", "False": "write false", "FALSE": "write false",
	"now": "CEL has no clock: a decision must be the same when it is made again", "keys": "a macro goes over the keys of a map: m.all(k, …), m.exists(k, …)",
	"user": "write request.userInfo.username", "username": "write request.userInfo.username", "groups": "write request.userInfo.groups", "userInfo": "write request.userInfo",
	"variables": "declare it beside the rule: variables: name: \"…\"", "input": "write object", "self": "write object", "this": "write object", "obj": "write object", "it": "write object",
	"equals": "write a == b", "implies": "write !(a) || b", "startsWith": "write x.startsWith('a')", "endsWith": "write x.endsWith('a')",
	"operation": "write request.operation", "namespace": "write object.metadata.namespace", "name": "write object.metadata.name",
	"metadata": "write object.metadata", "spec": "write object.spec", "status": "write object.status", "old": "write oldObject", "resource": "write object",
}

// withSelf are what rules of a schema have in place of what admission has.
var withSelf = map[string]string{
	"object":    "a rule of a kind sees the value at its path as self: write self",
	"oldObject": "a rule of a kind sees what the value was before as oldSelf: write oldSelf",
	"spec":      "write self.spec, in a rule without a path", "status": "write self.status, in a rule without a path", "metadata": "write self.metadata, in a rule without a path",
	"name": "write self.metadata.name, in a rule without a path", "namespace": "rules of a kind do not know the namespace; write an admission rule",
	"request": "rules of a kind do not know the request; write an admission rule", "params": "rules of a kind have no params; write an admission rule", "user": "rules of a kind do not know the user; write an admission rule",
}

// withObject are what admission has in place of what rules of a schema have.
var withObject = map[string]string{
	"self":    "self is of the rules of kinds; here the object is called object: write object",
	"oldSelf": "oldSelf is of the rules of kinds; here the stored object is called oldObject: write oldObject",
	"subject": "write request.userInfo",
}

// habit returns what to write instead of a name that CEL does not have; "" if that is not known.
func (f *Fault) habit(text string) string {
	if undefined.MatchString(f.Message) {
		return f.habitOfField()
	}
	name, _, _ := strings.Cut(f.Name, ".")
	own := withObject
	if slices.Contains(f.Known, VarSelf) {
		own = withSelf
	}
	if hint := own[name]; hint != "" {
		return hint
	}
	if hint := habits[f.Name]; hint != "" {
		return hint
	}
	if wording.Nearest(f.Name, f.Known) == "" && regexp.MustCompile(`^\w+$`).MatchString(f.Name) && !strings.Contains(text, f.Name+"(") && !strings.Contains(text, f.Name+".") {
		return fmt.Sprintf("a text stands in quotes: '%s'", f.Name)
	}
	return ""
}

// habitOfField returns what to write instead of a field that does not exist.
func (f *Fault) habitOfField() string {
	switch {
	case wording.Nearest(f.Name, f.Known) != "":
		return ""
	case f.Inside != "":
		return fmt.Sprintf("it is %s here: write .%s", f.Inside, f.Inside)
	case f.Name == "user" && slices.Contains(f.Known, "userInfo"):
		return "write request.userInfo.username, or .groups"
	case f.Name == "name" && slices.Contains(f.Known, "username"):
		return "write .username"
	case len(f.Known) > 0:
		return "its fields are " + wording.Enumerate(wording.Quoted(f.Known))
	}
	return ""
}

// foreignOperators are what other languages write for an operator of CEL.
var foreignOperators = []struct{ written, meant string }{
	{"===", "=="}, {"!==", "!="}, {"<>", "!="}, {"=<", "<="}, {"=>", ">="}, {"=~", "x.matches('…')"}, {"!~", "!x.matches('…')"}, {"??", "has(a.b) ? a.b : c"}, {"?.", "a.?b, and .orValue(c) behind it"},
	{":=", "=="}, {"**", "x * x"},
}

var (
	hasOfTwo   = regexp.MustCompile(`\bhas\(\s*([\w.]+)\s*,\s*(?:'(\w+)'|"(\w+)"|(\w+))\s*\)`)
	hasOfText  = regexp.MustCompile(`\bhas\(\s*(?:'[^']*'|"[^"]*")\s*\)`)
	hasIndexed = regexp.MustCompile(`\bhas\(\s*([\w.]+)\[('[^']*'|"[^"]*")\]\s*\)`)
	inParens   = regexp.MustCompile(`\bin\s*\(([^()\[\]]*)\)`)
	sized      = regexp.MustCompile(`([\w.\]\[]+)\.(length|len|size|count)\b(?:[^(]|$)`)
	sizedCall  = regexp.MustCompile(`([\w.\]\[]+)\.(length|len|count)\(\)`)
	notIn      = regexp.MustCompile(`(\S+)\s+not\s+in\s+`)
	existsTwo  = regexp.MustCompile(`\b(objects\.\w+)\.(?:exists|has|find)\(\s*([^(),]+),\s*([^(),]+)\)`)
)

// unlikeCEL explains what is written as in another language; false if nothing is known of it.
func (f *Fault) unlikeCEL(text string) (message, hint string, known bool) {
	outside := withoutTexts(text)
	if m := existsTwo.FindStringSubmatch(text); m != nil && strings.Contains(f.Message, "argument") {
		return fmt.Sprintf("%s is not a list", m[1]), fmt.Sprintf("one object is %s.get(%s, %s), and whether it exists .hasValue() behind that", m[1], strings.TrimSpace(m[2]), strings.TrimSpace(m[3])), true
	}
	if f.Name == "has" || strings.HasPrefix(f.Message, "invalid argument to has() macro") {
		return f.ofHas(text)
	}
	if strings.HasPrefix(f.Message, "Syntax error: ") || f.Name == "not" {
		for _, o := range foreignOperators {
			if strings.Contains(outside, o.written) {
				return o.written + " is no operator", fmt.Sprintf("CEL has %s, and no %s", o.meant, o.written), true
			}
		}
		if m := notIn.FindStringSubmatch(text); m != nil {
			return "CEL has no operator `not in`", fmt.Sprintf("write !(%s in …)", m[1]), true
		}
		if m := inParens.FindStringSubmatch(text); m != nil {
			return "behind in stands a list", fmt.Sprintf("write in [%s]", m[1]), true
		}
		if words(outside, "if") {
			return "CEL has no if", "write condition ? a : b", true
		}
		if words(outside, "is") {
			return "CEL has no operator `is`", "compare with ==", true
		}
	}
	if message, hint, known := f.unlikeSyntax(outside); known {
		return message, hint, true
	}
	if message, hint, known := f.unlikeTypes(text, outside); known {
		return message, hint, true
	}
	if strings.HasPrefix(f.Message, "found no matching overload for '@in'") {
		if m := inParens.FindStringSubmatch(text); m != nil && strings.Contains(f.Message, "(string, string)") {
			return "behind in stands a list, and not a text", fmt.Sprintf("write in [%s]", m[1]), true
		}
		return strings.Replace(f.Message, "'@in'", "`in`", 1), "behind in stands a list, or a map whose keys are meant; a part of a text is x.contains('a')", true
	}
	if m := sizedCall.FindStringSubmatch(outside); m != nil && f.Name == m[2] {
		return f.Message, fmt.Sprintf("write size(%s)", m[1]), true
	}
	if m := sized.FindStringSubmatch(outside); m != nil && strings.Contains(f.Message, "does not support field selection") {
		return fmt.Sprintf("there is no field .%s", m[2]), fmt.Sprintf("write size(%s)", m[1]), true
	}
	return "", "", false
}

// unlikeSyntax explains signs and words that CEL's grammar does not have, in an expression without its texts.
func (f *Fault) unlikeSyntax(outside string) (message, hint string, known bool) {
	if f.Message == "reserved identifier: if" {
		return "CEL has no if", "write condition ? a : b", true
	}
	if !strings.HasPrefix(f.Message, "Syntax error: ") {
		return "", "", false
	}
	for _, c := range []struct{ written, message, hint string }{
		{"$", "CEL has no $", "write the path of a field alone: object.spec.size"},
		{"{{", "CEL has no {{…}}", "write the path of a field alone: object.spec.size"},
		{";", "CEL has no ;", "an expression is one value, without ; at its end"},
		{"@", "CEL has no @", "a text stands in quotes: '…'"},
		{"->", "-> is no operator", "if a, then b is !(a) || b in CEL"},
	} {
		if strings.Contains(outside, c.written) {
			return c.message, c.hint, true
		}
	}
	switch {
	case words(outside, "implies"):
		return "CEL has no operator `implies`", "write !(a) || b", true
	case words(outside, "like", "LIKE", "matches"):
		return "CEL has no such operator between values", "write x.startsWith('a'), x.contains('a') or x.matches('^a.*$')", true
	case strings.Contains(f.Message, "expecting ':'") && strings.Contains(outside, "?"):
		return "a condition has two results", "write condition ? a : b", true
	case strings.Contains(f.Message, "expecting {"):
		said, _, _ := strings.Cut(f.Message, " expecting {")
		return strings.ReplaceAll(said, "<EOF>", "the end") + ", where a value is expected", "see that operators have values on both sides, and that brackets are closed", true
	}
	return "", "", false
}

var (
	existsOfMap   = regexp.MustCompile(`([\w.]+)\.(?:exists|contains|has)\(\s*('[^']*'|"[^"]*")\s*\)`)
	indexedFields = regexp.MustCompile(`\b(\w+(?:\.\w+)*)((?:\[(?:'\w+'|"\w+")\])+)`)
	twoBounds     = regexp.MustCompile(`(\S+)\s*(<=?|>=?)\s*([^<>=&|]+?)\s*(<=?|>=?)\s*(\S+)`)
	invalidRegexp = regexp.MustCompile(`matches\(\s*r?(?:'([^']*)'|"([^"]*)")`)
)

// unlikeTypes explains operators and functions on values of types that they do not take.
func (f *Fault) unlikeTypes(text, outside string) (message, hint string, known bool) {
	switch m := noOverload.FindStringSubmatch(f.Message); {
	case f.Message == "invalid matches argument":
		return f.ofRegexp(text)
	case strings.HasPrefix(f.Message, "found no matching overload for") && strings.Contains(f.Message, "'map("):
		if m := existsOfMap.FindStringSubmatch(text); m != nil {
			return fmt.Sprintf("%s is a map", m[1]), fmt.Sprintf("whether it has a key is: %s in %s", m[2], m[1]), true
		}
	case m == nil:
		if strings.HasPrefix(f.Message, "its value is of type kubernetes.authorization.") {
			return f.Message, "end it with .check('VERB').allowed()", true
		}
		if strings.HasPrefix(f.Message, "its value is of type map") && strings.HasSuffix(f.Message, "must be of type Object") {
			return f.Message, "write what is to be applied as Object{metadata: Object.metadata{…}}, with the type in front of each brace", true
		}
	case m[2] == "[_]" || strings.HasPrefix(f.Message, "found no matching overload for '_[_]'"):
		if m := indexedFields.FindStringSubmatch(text); m != nil {
			path := strings.NewReplacer("['", ".", "']", "", `["`, ".", `"]`, "").Replace(m[2])
			return "fields of an object are not chosen by [ ]", fmt.Sprintf("write %s%s", m[1], path), true
		}
	case m[2] == "!" && strings.Contains(outside, "=="):
		return "! cannot be applied to " + m[3] + ": it binds more tightly than ==", "write a != b, or !(a == b)", true
	case strings.ContainsAny(m[2], "<>") && m[3] == "bool, int":
		if b := twoBounds.FindStringSubmatch(outside); b != nil {
			return "comparisons cannot be chained", fmt.Sprintf("write %s %s %s && %s %s %s", b[1], b[2], b[3], b[3], b[4], b[5]), true
		}
	case strings.Contains(m[3], "duration") && strings.Contains(m[3], "string"):
		return m[2] + " cannot be applied to " + strings.ReplaceAll(m[3], ", ", " and "), "convert the text: duration(x)", true
	case strings.Contains(m[3], "timestamp") && strings.Contains(m[3], "string"):
		return m[2] + " cannot be applied to " + strings.ReplaceAll(m[3], ", ", " and "), "convert the text: timestamp(x)", true
	case strings.HasPrefix(f.Message, "found no matching overload for 'size' applied to"):
		return "size() takes a text, a list or a map, and no " + m[3], "compare a number itself: x > 3", true
	case strings.HasPrefix(f.Message, "found no matching overload for 'quantity' applied to"):
		return "quantity() takes a text, and no " + m[3], "write quantity(string(x))", true
	}
	return "", "", false
}

// ofRegexp explains why a regular expression cannot be read.
func (f *Fault) ofRegexp(text string) (message, hint string, known bool) {
	for _, m := range invalidRegexp.FindAllStringSubmatch(text, -1) {
		var e *syntax.Error
		if _, err := syntax.Parse(m[1]+m[2], syntax.Perl); !errors.As(err, &e) {
			continue
		}
		if strings.HasPrefix(e.Expr, "(?=") || strings.HasPrefix(e.Expr, "(?!") || strings.HasPrefix(e.Expr, "(?<") {
			return fmt.Sprintf("RE2 has no lookahead and no lookbehind: %q", wording.Cut(e.Expr, 4)), "write two matches() joined by &&, one of them with ! before it if it must not match", true
		}
		return fmt.Sprintf("the regular expression cannot be read: %s: %s", e.Code, e.Expr), `write \\ before a character that is meant itself`, true
	}
	return "the regular expression cannot be read", "it is one of RE2: https://github.com/google/re2/wiki/Syntax", true
}

// ofHas explains a wrong call of the macro has.
func (f *Fault) ofHas(text string) (message, hint string, known bool) {
	const one = "has() takes the path of one field"
	if m := hasOfTwo.FindStringSubmatch(text); m != nil {
		return one, fmt.Sprintf("write has(%s.%s)", m[1], m[2]+m[3]+m[4]), true
	}
	if m := hasIndexed.FindStringSubmatch(text); m != nil {
		return one, fmt.Sprintf("write %s in %s", m[2], m[1]), true
	}
	if hasOfText.MatchString(text) {
		return one, "write the path without quotes: has(object.spec.size)", true
	}
	return one, "write has(object.spec.size); whether a map has a key is 'key' in map", true
}

// withoutTexts returns an expression with the insides of its texts replaced by spaces.
func withoutTexts(text string) string {
	out := []byte(text)
	quote := byte(0)
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case quote != 0 && c == '\\' && i+1 < len(out):
			out[i], out[i+1] = ' ', ' '
			i++
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			out[i] = ' '
		}
	}
	return string(out)
}
