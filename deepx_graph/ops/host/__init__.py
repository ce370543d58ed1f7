"""Operations that concern the world around a program: effects, checks, custom calls, feeds, collectives."""
