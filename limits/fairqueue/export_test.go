package fairqueue

// StartAtPresent lets requests begin at the present reading of the meter, as in kube-apiserver.
func (s *Set) StartAtPresent() { s.lead = 0 }
