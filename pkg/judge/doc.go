// Package judge turns the facts of a timeline into milestones, windows and
// verdicts. It is pure: it knows no clock, no environment and no network, so
// that a run recorded today can be judged again tomorrow with better rules.
//
// Windows are derived from the flags that were in force and from the source of
// the Kubernetes version that ran; each carries the term that ruled. None of them
// is a constant somebody measured once.
package judge
