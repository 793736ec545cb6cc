package compile

import (
	"fmt"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/servercontrollers"
	"stele.dev/stele/schemas"
)

// meetsControllers warns of denies that match the server's own controllers.
func (c *compiler) meetsControllers(f *policy.Form) {
	for i := range f.Denies {
		d := &f.Denies[i]
		met, err := servercontrollers.DeniedBy(f, d)
		if err != nil || len(met) == 0 {
			continue // an error in its exception is already reported
		}
		first := met[0]
		_, account, _ := strings.Cut(strings.TrimPrefix(first.User, serviceaccount.ServiceAccountUsernamePrefix), ":")
		message := fmt.Sprintf("it also meets the server's own %s, which then cannot %s %s%s: %s", account, first.Verbs[0], first.Resources[0], first.Which(), first.Otherwise)
		c.Warnings = append(c.Warnings, schemas.Diagnostic{Pos: d.Source, Path: d.ID, Message: message, Hint: fmt.Sprintf("write unless: %q", servercontrollers.ExceptionFor(d, met)), Lint: "DENY_MEETS_CONTROLLERS"})
	}
}
