"""What several tests share: servers, builders, fakes of the outside world."""
