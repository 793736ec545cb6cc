package plane

import "stele.dev/stele/projections/audit"

// Audit says where the audit log goes, beside or in place of a file.
type Audit struct {
	// Rotation says how large the file gets, and how many are kept.
	Rotation audit.Rotation
}

// openAudit opens the audit file.
func (p *Plane) openAudit() (err error) {
	c := &p.config
	if c.AuditFile == "" {
		return nil
	}
	decisions := p.Decisions.Log()
	p.audit, err = audit.Open(audit.Options{
		File: c.AuditFile, Log: p.Log, Start: p.Log.Start(), Decisions: decisions, DecisionsStart: decisions.Start(), Rotation: c.Audit.Rotation, Key: p.hashes, Logger: c.Logger,
	})
	return err
}
