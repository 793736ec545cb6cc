package show

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/keep/retention"
	"stele.dev/stele/schemas/wording"
)

// Retention prints what is kept of the past, one line for each kind.
func Retention(out *Output, r *retention.Report) error {
	c := &Columns{Out: out}
	c.Header("KIND", "VERSIONS", "RECORDS", "READABLE SINCE", "REVISION", "KEPT", "SIZE", "RULE")
	for _, k := range r.Kinds {
		since := "the beginning"
		if k.Oldest > 1 {
			since = out.Time(k.Since)
		}
		rule := k.Rule + wording.At(k.Source)
		c.Add("", Cell{Text: schema.GroupResource{Group: k.Group, Resource: k.Resource}.String()}, Cell{Text: k.History}, Cell{Text: k.Records},
			Cell{Text: since}, Cell{Text: fmt.Sprint(k.Oldest), right: true}, Cell{Text: fmt.Sprint(k.Versions), right: true}, Cell{Text: bytesText(uint64(k.Bytes)), right: true}, Cell{Text: cmp.Or(rule, "-")})
	}
	if err := c.Flush(); err != nil {
		return err
	}
	limit := ""
	if r.MaxBytes > 0 {
		limit = " of " + bytesText(uint64(r.MaxBytes))
	}
	ages := ""
	if !r.Horizon.IsZero() {
		ages = " Ages are counted from " + out.Time(r.Horizon) + "."
	}
	_, err := fmt.Fprintf(out, "\nAll segments take %s%s.%s\n", bytesText(uint64(r.Bytes)), limit, ages)
	return err
}
