package textforms

import (
	"encoding/base64"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"stele.dev/stele/schemas"
)

// OpenAPI formats that CUE lacks or defines in another way follow.

// FormatOf returns the test for the node's format, or nil if the format is not checked.
func FormatOf(n *schemas.Node) func(string) bool {
	switch {
	case n.Format == "":
		return nil
	case n.Format == schemas.FormatByte && !n.Plain:
		return isBase64
	case n.Format == schemas.FormatDateTime && !n.Plain:
		return isDateTime
	case n.Format == schemas.FormatQuantity:
		return isQuantity
	case !strfmt.Default.ContainsName(n.Format):
		return nil
	}
	return func(s string) bool { return strfmt.Default.Validates(n.Format, s) }
}

func isQuantity(s string) bool {
	_, err := resource.ParseQuantity(s)
	return err == nil
}

func isBase64(s string) bool {
	_, err := base64.StdEncoding.DecodeString(s)
	return err == nil
}

func isDateTime(s string) bool {
	_, err := time.Parse(time.RFC3339Nano, s)
	return err == nil
}
