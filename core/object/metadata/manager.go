package metadata

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
)

// FieldManager returns the default field manager of a request: the beginning of its User-Agent.
func FieldManager(userAgent string) string {
	name, _, _ := strings.Cut(userAgent, "/")
	var b strings.Builder
	for _, c := range name {
		if !unicode.IsPrint(c) {
			continue
		}
		if b.Len()+utf8.RuneLen(c) > validation.FieldManagerMaxLength {
			break
		}
		b.WriteRune(c)
	}
	return b.String()
}
