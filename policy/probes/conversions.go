package probes

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas/samples"
)

// conversions returns samples of each version of a kind, and what they are in the others.
func (p *prober) conversions() (list []policy.ConversionProbe) {
	for _, k := range p.Kinds() {
		if !k.Kind.Converted() {
			continue
		}
		for _, from := range k.Versions {
			for _, to := range k.Versions {
				if from.Way(to.Name) == nil {
					continue
				}
				for _, object := range samples.Of(from.Schema) {
					text, err := json.Marshal(object)
					if err != nil {
						continue // a number that JSON cannot represent
					}
					probe := policy.ConversionProbe{Resource: k.Resource(), From: from.Name, To: to.Name, Object: text}
					if probe.Converted = p.convertProbe(&probe); probe.Converted != nil && p.converts(&probe) {
						list = append(list, probe)
					}
				}
			}
		}
	}
	return list
}

// converts reports whether an object is converted to the same one each time. That is not so if an expression depends on the order of
// a map that it makes.
func (p *prober) converts(probe *policy.ConversionProbe) bool {
	for range 8 {
		if string(p.convertProbe(probe)) != string(probe.Converted) {
			return false
		}
	}
	return true
}

// convertProbe returns what an object is in another version; nil if it cannot be converted.
func (p *prober) convertProbe(probe *policy.ConversionProbe) json.RawMessage {
	k := p.Kind(schema.ParseGroupResource(probe.Resource))
	if k == nil {
		return nil
	}
	for _, to := range k.Versions {
		if to.Name != probe.To {
			continue
		}
		var content map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(probe.Object, &content); err != nil {
			return nil
		}
		if err := to.Convert(probe.From, content); err != nil {
			return nil
		}
		text, err := json.Marshal(content)
		if err != nil {
			return nil
		}
		return text
	}
	return nil
}
