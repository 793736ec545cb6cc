package counterexamples

import (
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
)

// Align gives conditions that mean the same the same text, so that the comparison of two accesses, which compares
// texts, finds no difference. before and after are the accesses of the two forms.
func Align(from, to *policy.Form, before, after *policy.Access) {
	texts := map[string]string{} // by canonical form
	align := func(is *policy.Condition, shown **policy.Condition) {
		if is == nil {
			return
		}
		form, err := expr.Canonical(is.Checked, nil)
		if err != nil {
			return
		}
		if _, found := texts[form]; !found {
			texts[form] = is.Text
		}
		x := **shown
		x.Text = texts[form]
		*shown = &x
	}
	for _, side := range []struct {
		form   *policy.Form
		access *policy.Access
	}{{from, before}, {to, after}} {
		for i := range side.form.Bindings {
			align(side.form.Bindings[i].When, &side.access.Bindings[i].When)
		}
		for i := range side.form.Denies {
			align(side.form.Denies[i].Unless, &side.access.Denies[i].Unless)
		}
	}
}
