package interpreter

import (
	"fmt"
	"regexp"
	"strings"

	"cuelang.org/go/cue/errors"
	"stele.dev/stele/schemas/wording"
)

// The formats of CUE's messages.
const (
	notSatisfied = "invalid value %s (does not satisfy %s)"
	notMatched   = "%d matched, expected %v"
)

// messageOf returns CUE's message without internal details: values that are parts of the schema, and the
// exporter's names of hidden fields.
func messageOf(e errors.Error) string {
	format, args := e.Msg()
	if format == notSatisfied && len(args) == 2 {
		value, validator := fmt.Sprint(args[0]), fmt.Sprint(args[1])
		switch {
		case validator == "matchN":
			return matchedOf(e)
		case validator == "matchIf":
			return "is not what matchIf demands of it"
		case strings.HasPrefix(value, "{"), strings.HasPrefix(value, "["): // the value is a part of the schema
			return "does not satisfy " + validator
		}
	}
	return hiddenNames.ReplaceAllString(fmt.Sprintf(format, args...), "$1")
}

// matchedOf returns how many arguments of matchN a value satisfies, taken from CUE's message, or "".
func matchedOf(e error) string {
	for ; e != nil; e = errors.Unwrap(e) {
		of, ok := e.(errors.Error)
		if !ok {
			break
		}
		if format, args := of.Msg(); format == notMatched && len(args) == 2 {
			return fmt.Sprintf("satisfies %v of the alternatives of matchN, and must satisfy %v", args[0], args[1])
		}
	}
	return "satisfies too few or too many of the alternatives of matchN"
}

// hiddenNames matches the names that the exporter gives to hidden fields: _name_1A2B3C4D.
var hiddenNames = regexp.MustCompile(`\b(_[A-Za-z0-9_$]*?)_[0-9A-F]{8}\b`)

// plainName returns a field name as written in the schema, without quotes.
func plainName(label string) string {
	return hiddenNames.ReplaceAllString(wording.Unquoted(label), "$1")
}
