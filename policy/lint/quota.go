package lint

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"stele.dev/stele/policy/plan/kinds/regexps"
	"stele.dev/stele/policy/quotas"
	"stele.dev/stele/schemas"
)

// spellingOfQuantities is how Kubernetes writes quantities.
const spellingOfQuantities = `^[-+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][-+]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$`

// quotas finds sums of quotas over fields that may hold what is no quantity.
func (c *checking) quotas() error {
	for i := range c.Form.Quota.Resources {
		r := &c.Form.Quota.Resources[i]
		for j := range r.Sums {
			if err := c.quotaSum(&r.Sums[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *checking) quotaSum(s *quotas.Sum) error {
	for i := range c.Form.Kinds {
		k := &c.Form.Kinds[i]
		if k.Resource() != s.Kind {
			continue
		}
		v, found := k.Version(k.StorageVersion)
		if !found {
			return nil
		}
		n, err := quotas.Node(s.Path, v.Schema)
		if err != nil || n == nil || n.Format == schemas.FormatQuantity {
			return nil
		}
		for _, alternative := range n.Alternatives(schemas.StringKind) {
			other, found, err := c.notQuantity(alternative)
			if err != nil {
				return err
			}
			if found {
				c.add("QUOTA_NO_QUANTITY", s.At, s.ID, fmt.Sprintf("%s may be %q, which is no quantity: later writes beside such an object would be refused", s.Path, other), "")
				return nil
			}
		}
	}
	return nil
}

// notQuantity returns a string that an alternative admits and that is no quantity.
func (c *checking) notQuantity(s *schemas.Scalar) (text string, found bool, err error) {
	if len(s.Enum) > 0 {
		for _, value := range s.Enum {
			if json.Unmarshal(value, &text) != nil {
				continue
			}
			if _, err := resource.ParseQuantity(text); err != nil {
				return text, true, nil
			}
		}
		return "", false, nil
	}
	if len(s.Patterns) == 0 {
		return "", false, nil // the compiler refuses any string
	}
	own := regexps.Language{Max: -1}
	for _, p := range s.Patterns {
		own.Patterns = append(own.Patterns, regexps.Pattern{Regexp: p.Regexp, Negated: p.Negated})
	}
	differ, err := regexps.Compare(c.ctx, own, regexps.Language{Patterns: []regexps.Pattern{{Regexp: spellingOfQuantities}}, Max: -1})
	if err != nil {
		return "", false, c.ctx.Err()
	}
	return differ.OnlyFirst, differ.HasOnlyFirst, nil
}
