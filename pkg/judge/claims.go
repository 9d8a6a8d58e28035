package judge

// A Claim is a moment that the reference document gives for a step of the chain,
// under Kubernetes' own timers.
type Claim struct {
	ID      string  `json:"id"`
	Seconds float64 `json:"seconds"` // after the milestone from which the step's window counts
	Said    string  `json:"said"`
}

// ClaimsOn are the claims about the time of a milestone. They are about defaults:
// a run with other timers can neither confirm nor refute them.
func ClaimsOn(r Result) []Claim {
	switch r.Name {
	case LeaseStalled:
		return []Claim{{"C10", 10, "renewal stops within 10 s after the certificate has become invalid"}}
	case ReadyUnknown:
		return []Claim{{"C11", 40, "Ready=Unknown after about 40 s without renewal"}}
	case PodEvicted:
		if r.Subject == "300s" {
			return []Claim{{"C15", 300, "eviction starts 5 minutes after the node became NotReady"}}
		}
	}
	return nil
}
